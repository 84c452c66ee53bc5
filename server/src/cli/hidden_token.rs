//! A token that was given to the command line.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A token as an argument: not part of what is printed of the options or of an error.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenToken(String);

impl HiddenToken {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for HiddenToken {
    type Err = Infallible;

    /// Takes any text: an error of the command line would show it.
    fn from_str(text: &str) -> Result<HiddenToken, Infallible> {
        Ok(HiddenToken(text.to_owned()))
    }
}

impl fmt::Debug for HiddenToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}
