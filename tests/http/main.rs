//! What comes over HTTP when nobody means well, made from our own OpenAPI document (`../faults.md`, R24).

mod hostile;
