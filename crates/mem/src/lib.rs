//! Arena, concurrent skiplist and block cache.
