//! The system as a whole. This library is empty; each folder beside it is one kind of test:
//!
//! | room | question |
//! |---|---|
//! | `acceptance/` | does a payment go its way, and each failure its own (requirements S0.1 to S0.17)? |
