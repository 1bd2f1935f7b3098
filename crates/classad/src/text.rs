//! The string type of the language: bytes, usually UTF-8, cheap to clone.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A string value. ClassAd strings are bytes: octal escapes and `substr` can cut through a UTF-8 sequence.
///
/// ```
/// use classad::Str;
/// let s = Str::from("slot1@node");
/// assert_eq!(s.as_str(), Some("slot1@node"));
/// assert_eq!(s.as_bytes().len(), 10);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Str(Arc<[u8]>);

impl Str {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many strings share these bytes.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The text, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text, with replacement characters where it is not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Str {
        Str(text.as_bytes().into())
    }
}

impl From<String> for Str {
    fn from(text: String) -> Str {
        Str(text.into_bytes().into())
    }
}

impl From<&[u8]> for Str {
    fn from(bytes: &[u8]) -> Str {
        Str(bytes.into())
    }
}

impl From<Vec<u8>> for Str {
    fn from(bytes: Vec<u8>) -> Str {
        Str(bytes.into())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}
