//! The error codes of the HTTP APIs, read from the sources.

use std::collections::BTreeSet;

use crate::{arguments, is_word, literals, sources};

/// Calls that create a problem with a code.
const CONSTRUCTORS: [&str; 8] = [
    "Problem::new(",
    "Problem::bad_request(",
    "Problem::missing(",
    "Problem::conflict(",
    "Problem::unprocessable(",
    "refused(",
    "not_supported(",
    "=> (",
];

/// Number of constructor calls per file whose code is a variable, because the literal is elsewhere in the same sources.
/// Check a new call by hand and count it here.
const INDIRECT_CODES: [(&str, usize); 5] = [
    // The codes of `idempotency::http::Refusal`.
    ("webhook/src/idempotent.rs", 4),
    // `refused(code, ..)` and the two codes of a kill switch.
    ("webhook/src/routes/payments/acceptance.rs", 2),
    // `refused(status, code, ..)`.
    ("webhook/src/streams/slots.rs", 1),
    ("crates/mock-switch/src/routes/mod.rs", 1),
    // The constructors themselves.
    ("crates/service-kit/src/problem/mod.rs", 4),
];

/// Codes of the payments API and the callbacks, and those of every process.
pub(crate) fn bank_codes() -> BTreeSet<String> {
    let mut codes = codes(&["webhook/src", "crates/service-kit/src"]);
    let http = sources(&["crates/idempotency/src"]);
    let (_, refusal) = http.iter().find(|(path, _)| path.ends_with("idempotency/src/http.rs")).unwrap();
    let code = refusal.split("pub fn code(").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let key_codes: BTreeSet<_> = literals(code).into_iter().map(str::to_owned).collect();
    assert_eq!(key_codes.len(), 6, "{key_codes:?}");
    codes.extend(key_codes);
    codes
}

/// Codes of operator-api, and those of every process.
pub(crate) fn operator_api_codes() -> BTreeSet<String> {
    codes(&["operator-api/src"])
}

/// Codes of the mock switch, and those of every process.
pub(crate) fn mock_switch_codes() -> BTreeSet<String> {
    codes(&["crates/mock-switch/src"])
}

fn codes(folders: &[&str]) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for (path, code) in sources(folders) {
        let mut indirect = 0;
        // The problem module itself writes `Self::`.
        let is_problem_module = path.starts_with("crates/service-kit/src/problem/");
        let code = if is_problem_module { code.replace("Self::", "Problem::") } else { code };
        for constructor in CONSTRUCTORS {
            for (at, _) in code.match_indices(constructor) {
                let arguments = arguments(&code, at + constructor.len() - 1);
                match literals(arguments).first() {
                    Some(code) if is_word(code) => {
                        codes.insert((*code).to_owned());
                    }
                    _ if constructor.starts_with("Problem::") => indirect += 1,
                    _ => {}
                }
            }
        }
        let expected = INDIRECT_CODES.iter().find(|(file, _)| *file == path).map_or(0, |(_, count)| *count);
        assert_eq!(indirect, expected, "{path}: constructor calls without a literal code");
    }
    codes
}
