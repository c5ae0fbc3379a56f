//! Retention arithmetic, hand-stepped.
