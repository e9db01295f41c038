//! A real OpenID provider (`crates/testkit/oidc-provider`) on loopback, and what an operator's browser does there.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use reqwest::{Client, StatusCode, Url, redirect};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::reserved_port::ReservedPort;
use crate::wait::until;

/// Time limit for the provider to listen.
const WITHIN: Duration = Duration::from_secs(30);
/// Most pages of a login.
const PAGES_MAX: usize = 10;

/// A provider with payctl's client and the users carol and dave, who are also its subjects. Killed when dropped.
#[derive(Debug)]
pub struct OidcProvider {
    _child: Child,
    port: ReservedPort,
    browser: Client,
}

impl OidcProvider {
    /// The client of payctl.
    pub const CLIENT_ID: &str = "payctl";
    /// A client of another service.
    pub const OTHER_CLIENT_ID: &str = "another";

    /// Starts a provider on a free port.
    ///
    /// # Errors
    /// If it is not installed or does not listen in time.
    pub async fn start() -> anyhow::Result<Self> {
        let port = ReservedPort::reserve()?;
        let program = std::env::var_os("TEST_OIDC_PROVIDER").unwrap_or_else(|| "oidc-provider".into());
        let number = port.number();
        let mut child = Command::new(program)
            .arg(number.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context(
                "oidc-provider cannot be started; `./dev test` builds it from crates/testkit/oidc-provider",
            )?;
        until("the OpenID provider listens", WITHIN, || {
            let exited = child.try_wait();
            async move {
                if let Ok(Some(status)) = exited {
                    bail!("oidc-provider exited with {status}");
                }
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, number)).await.ok().map(drop))
            }
        })
        .await?;
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let browser = Client::builder().redirect(redirect::Policy::none()).no_proxy().tls_certs_only([]);
        Ok(Self { _child: child, port, browser: browser.build()? })
    }

    /// The provider's URL.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// What a browser does: opens the page of an authorization, logs the user in, and goes where the provider sends it. Returns what it
    /// shows there.
    ///
    /// # Errors
    /// If a page is missing or the login is refused.
    pub async fn log_in(&self, page: &str, user: &str) -> anyhow::Result<(StatusCode, String)> {
        let mut url: Url = page.parse()?;
        for _ in 0..PAGES_MAX {
            let response = if url.path() == "/login/username" {
                let request = url.query_pairs().find(|(name, _)| name == "authRequestID");
                let (_, id) = request.context("the login page has no request")?;
                let form = [("username", user), ("password", &password(user)), ("id", &id)];
                self.submit(&url, &form).await?
            } else {
                self.browser.get(url.clone()).send().await?
            };
            if !response.status().is_redirection() {
                return Ok((response.status(), response.text().await?));
            }
            let next = response.headers().get("location").context("a redirect leads nowhere")?;
            url = url.join(next.to_str()?)?;
        }
        bail!("the login has more than {PAGES_MAX} pages")
    }

    /// What an operator does on another machine: enters the code of a device, logs in and allows it.
    ///
    /// # Errors
    /// If a page is missing or the login is refused.
    pub async fn allow_device(&self, page: &str, code: &str, user: &str) -> anyhow::Result<()> {
        let page: Url = page.parse()?;
        let login = page.join("/device/login")?;
        let form = [("username", user), ("password", &password(user)), ("user_code", code)];
        let response = self.submit(&login, &form).await?;
        let cookie = response.headers().get("set-cookie").context("the login is refused")?;
        let cookie = cookie.to_str()?.split(';').next().unwrap_or_default().to_owned();
        let confirm = page.join("/device/confirm?action=allowed")?;
        let allowed = self.browser.get(confirm).header("cookie", cookie).send().await?;
        ensure!(allowed.status().is_success(), "the device is refused: {}", allowed.text().await?);
        Ok(())
    }

    /// An ID token of a user for a client, obtained as a device.
    ///
    /// # Errors
    /// If the provider refuses.
    pub async fn id_token(&self, client_id: &str, user: &str) -> anyhow::Result<String> {
        let device: Url = format!("{}/device_authorization", self.issuer()).parse()?;
        let device = self.submit(&device, &[("client_id", client_id), ("scope", "openid")]).await?;
        let device: serde_json::Value = device.json().await?;
        let field = |name: &str| device[name].as_str().with_context(|| format!("no {name} in {device}"));
        self.allow_device(field("verification_uri")?, field("user_code")?, user).await?;
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let form = [("grant_type", grant), ("device_code", field("device_code")?), ("client_id", client_id)];
        let tokens: Url = format!("{}/oauth/token", self.issuer()).parse()?;
        let tokens: serde_json::Value = self.submit(&tokens, &form).await?.json().await?;
        Ok(tokens["id_token"].as_str().with_context(|| format!("no ID token in {tokens}"))?.to_owned())
    }

    async fn submit(&self, url: &Url, form: &[(&str, &str)]) -> anyhow::Result<reqwest::Response> {
        // A form is encoded as a query is.
        let mut fields = url.clone();
        fields.query_pairs_mut().clear().extend_pairs(form);
        let body = fields.query().unwrap_or_default().to_owned();
        let mut url = url.clone();
        url.set_query(None);
        let request = self.browser.post(url).header("content-type", "application/x-www-form-urlencoded");
        Ok(request.body(body).send().await?)
    }
}

fn password(user: &str) -> String {
    format!("demo-password-{user}")
}
