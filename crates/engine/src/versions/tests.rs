//! Installs.
