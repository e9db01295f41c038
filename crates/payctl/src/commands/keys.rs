//! `payctl keys`: who may call the API.

use payment_ledger::api_keys::Caller;
use payment_protocol::ids::{ClientId, TenantId};
use secrecy::ExposeSecret as _;

use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::secret;

/// Make API keys
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
}

/// Make a key for a client and show it this once; only its hash is stored
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tenant whose accounts it may use
    #[arg(long, value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// The client within the tenant; give the same one when its key is replaced
    #[arg(long, value_parser = super::id::<ClientId>)]
    client: ClientId,
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let Command::Create(args) = command;
    let ledger = args.database.ledger().await?;
    let caller = Caller { tenant: args.tenant, client: args.client };
    let key = secret::generate()?;
    secret::store(&ledger, &key, &caller).await?;
    out.line(key.expose_secret())?;
    Ok(Outcome::Done)
}
