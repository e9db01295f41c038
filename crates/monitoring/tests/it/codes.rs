//! The codes of the HTTP APIs, as the sources have them.

use std::collections::BTreeSet;

use crate::{arguments, is_word, literals, sources};

/// What makes a problem with a code.
const MAKERS: [&str; 8] = [
    "Problem::new(",
    "Problem::bad_request(",
    "Problem::missing(",
    "Problem::conflict(",
    "Problem::unprocessable(",
    "refused(",
    "not_supported(",
    "=> (",
];

/// Makers whose code comes from elsewhere in the same sources: how many there are in a file. A new one is looked at by
/// whoever writes it, and counted here.
const PASSED_ON: [(&str, usize); 5] = [
    // The codes of `idempotency::http::RequestRefusal`, which are read from there.
    ("webhook/src/idempotent.rs", 4),
    // `refused(code, ..)` and the two codes of a stop.
    ("webhook/src/routes/payments/acceptance.rs", 2),
    // `refused(status, code, ..)`.
    ("webhook/src/streams/slots.rs", 1),
    ("crates/mock-switch/src/routes/mod.rs", 1),
    // The makers themselves.
    ("crates/service-kit/src/problem/mod.rs", 4),
];

/// Codes of the payments API and of the callbacks, and what every process answers.
pub(crate) fn of_the_bank() -> BTreeSet<String> {
    let mut codes = codes(&["webhook/src", "crates/service-kit/src"]);
    let http = sources(&["crates/idempotency/src"]);
    let (_, refusal) = http.iter().find(|(path, _)| path.ends_with("idempotency/src/http.rs")).unwrap();
    let code = refusal.split("pub fn code(").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let of_keys: BTreeSet<_> = literals(code).into_iter().map(str::to_owned).collect();
    assert_eq!(of_keys.len(), 6, "{of_keys:?}");
    codes.extend(of_keys);
    codes
}

/// Codes of the mock switch, and what every process answers.
pub(crate) fn of_the_switch() -> BTreeSet<String> {
    codes(&["crates/mock-switch/src"])
}

fn codes(folders: &[&str]) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for (path, code) in sources(folders) {
        let mut passed_on = 0;
        // Where problems are made, they are made of `Self`.
        let is_maker = path.starts_with("crates/service-kit/src/problem/");
        let code = if is_maker { code.replace("Self::", "Problem::") } else { code };
        for maker in MAKERS {
            for (at, _) in code.match_indices(maker) {
                let arguments = arguments(&code, at + maker.len() - 1);
                match literals(arguments).first() {
                    Some(code) if is_word(code) => {
                        codes.insert((*code).to_owned());
                    }
                    _ if maker.starts_with("Problem::") => passed_on += 1,
                    _ => {}
                }
            }
        }
        let known = PASSED_ON.iter().find(|(file, _)| *file == path).map_or(0, |(_, known)| *known);
        assert_eq!(passed_on, known, "{path}: a code that is not written where the problem is made");
    }
    codes
}
