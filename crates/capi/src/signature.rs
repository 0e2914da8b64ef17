//! What the macros note of each function that they export.

/// An exported function as its source has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    /// What its documentation says, by lines.
    pub(crate) about: &'static [&'static str],
    /// `call` or `attempt`, and its name.
    pub(crate) head: &'static str,
    pub(crate) arguments: &'static [(&'static str, &'static str)],
    /// Empty: nothing.
    pub(crate) returned: &'static str,
}

/// The signature of a setter or getter.
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
