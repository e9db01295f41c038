//! Tests of the complete system with real PostgreSQL, real Temporal and real processes. This library is empty; each folder
//! beside it is one test target:
//!
//! | folder | subject |
//! |---|---|
//! | `acceptance/` | a payment without failures and with each kind of failure (S0.1 to S0.17); the generated clients (S1.7, S4.1) |
//! | `strategies/` | each submit strategy (S0.11, S1.5, S1.8), and operator decisions |
//! | `rails/` | the shipped profile of each real rail against a mock switch of its shape (docs/rails/README.md) |
//! | `callbacks/` | callbacks, cancels and interruptions in every state and at every instant (R6, R17 to R21c, R30), forged starts (R31) |
//! | `faults/` | failures of processes, servers, clocks and disks (R1 to R16, R22, R31, R35), upgrades (R29), of background-worker, broker and notifier (R23, R32), and of the data (R30b, R36) |
//! | `chaos/` | payments under load while every process, link and server fails at seeded instants (R11 to R15) |
//! | `http/` | requests generated from the OpenAPI document (R24) |
//! | `replay/` | recorded workflow histories against the current code (R27) |
//! | `tidy/` | mechanical checks of the repository: cited tests and paths, replaced words, dependencies between crates |
//!
//! `requirements.md` and `faults.md` list the tests of each requirement and each fault.
