//! Client library for Steward's daemon.
