//! Signatures of exported functions, recorded by the macros that export them.

/// An exported function as its source declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    /// The lines of its documentation.
    pub(crate) about: &'static [&'static str],
    /// `call` or `attempt`, and the function's name.
    pub(crate) head: &'static str,
    pub(crate) arguments: &'static [(&'static str, &'static str)],
    /// Returned type in Rust; empty for none.
    pub(crate) returned: &'static str,
}

/// Builds the signature of a setter or getter.
macro_rules! accessor {
    (set $name:ident $handle:ident $c:ident) => {
        $crate::signature::Signature {
            about: &[],
            head: concat!("call ", stringify!($name)),
            arguments: &[("handle", concat!("*mut ", stringify!($handle))), ("value", stringify!($c))],
            returned: "",
        }
    };
    (get $name:ident $handle:ident $c:ident) => {
        $crate::signature::Signature {
            about: &[],
            head: concat!("call ", stringify!($name)),
            arguments: &[("handle", concat!("*const ", stringify!($handle)))],
            returned: stringify!($c),
        }
    };
}
pub(crate) use accessor;

impl Signature {
    pub(crate) fn name(&self) -> &'static str {
        self.head.split_whitespace().next_back().unwrap_or(self.head)
    }
}
