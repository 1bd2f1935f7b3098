//! Values: what an expression evaluates to. Operators on them live in `eval`.

use crate::ad::ClassAd;
use crate::expr::Expr;
use crate::text::Str;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The result of an evaluation.
///
/// ```
/// use classad::Value;
/// assert_eq!(Value::from(3).as_int(), Some(3));
/// assert_eq!(Value::from("x").to_string(), "\"x\"");
/// assert_eq!(Value::from(true).truth(), Some(true));
/// ```
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing is known, for example because an attribute is missing.
    #[default]
    Undefined,
    /// The expression makes no sense for its operands.
    Error,
    /// A truth value.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// A string of bytes.
    Str(Str),
    /// A list, whose items are still expressions.
    List(List),
    /// An ad, whose attributes are still expressions.
    Ad(AdValue),
    /// A point in time.
    AbsTime(AbsTime),
    /// A span of time in seconds.
    RelTime(f64),
}

/// A point in time with the zone it was written in.
///
/// ```
/// let t = classad::AbsTime { secs: 0, offset: 0 };
/// assert_eq!(classad::Value::from(t).to_string(), "absTime(\"1970-01-01T00:00:00-00:00\")");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbsTime {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Seconds east of Greenwich.
    pub offset: i32,
}

/// Where, within one evaluation, the names of a lazy list or ad are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct FrameId(pub(crate) u32);

impl FrameId {
    pub(crate) const NONE: FrameId = FrameId(u32::MAX);
}

/// A list value. Items are lazy; [`ClassAd::eval_list`] evaluates them in place.
///
/// ```
/// let list = classad::List::from_values([1.into(), "a".into()]);
/// assert_eq!(list.items().len(), 2);
/// ```
#[derive(Clone)]
pub struct List {
    pub(crate) items: Arc<[Expr]>,
    pub(crate) frame: FrameId,
}

impl List {
    /// A list of plain values.
    pub fn from_values(values: impl IntoIterator<Item = Value>) -> List {
        List { items: values.into_iter().map(Expr::literal).collect(), frame: FrameId::NONE }
    }

    /// The items, unevaluated.
    pub fn items(&self) -> &[Expr] {
        &self.items
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.items.iter()).finish()
    }
}

/// An ad as a value; dereferences to the [`ClassAd`].
///
/// ```
/// let ad = classad::ClassAd::parse_new("[n = [a = 1]]").unwrap();
/// let classad::Value::Ad(n) = ad.eval("n") else { panic!() };
/// assert_eq!(n.eval("a").as_int(), Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct AdValue {
    pub(crate) ad: ClassAd,
    pub(crate) frame: FrameId,
}

impl AdValue {
    /// The ad itself.
    pub fn into_ad(self) -> ClassAd {
        self.ad
    }
}

impl Deref for AdValue {
    type Target = ClassAd;
    fn deref(&self) -> &ClassAd {
        &self.ad
    }
}

/// The type of a value; `name` gives the words used in tools.
///
/// ```
/// assert_eq!(classad::Value::Undefined.kind().name(), "undefined");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants are those of `Value`
pub enum Kind {
    Undefined,
    Error,
    Bool,
    Int,
    Real,
    Str,
    List,
    Ad,
    AbsTime,
    RelTime,
}

impl Kind {
    /// The word for this type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Undefined => "undefined",
            Kind::Error => "error",
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Real => "real",
            Kind::Str => "string",
            Kind::List => "list",
            Kind::Ad => "ad",
            Kind::AbsTime => "abstime",
            Kind::RelTime => "reltime",
        }
    }
}

impl Value {
    /// The type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Undefined => Kind::Undefined,
            Value::Error => Kind::Error,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Real(_) => Kind::Real,
            Value::Str(_) => Kind::Str,
            Value::List(_) => Kind::List,
            Value::Ad(_) => Kind::Ad,
            Value::AbsTime(_) => Kind::AbsTime,
            Value::RelTime(_) => Kind::RelTime,
        }
    }

    /// The truth of a boolean-equivalent value: bool, int, real. Others have none.
    #[inline]
    pub fn truth(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            Value::Int(i) => Some(*i != 0),
            Value::Real(r) => Some(*r != 0.0),
            _ => None,
        }
    }

    /// True only for a boolean-equivalent value that is true: the question Requirements answers.
    pub fn is_true(&self) -> bool {
        self.truth() == Some(true)
    }

    /// True if the value is undefined.
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }

    /// True if the value is error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error)
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The number, if it is an int, real or bool.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Bool(b) => Some(f64::from(u8::from(*b))),
            Value::Int(i) => Some(*i as f64),
            Value::Real(r) => Some(*r),
            _ => None,
        }
    }

    /// The number, if it is one; a bool is none.
    pub fn number(&self) -> Option<f64> {
        if matches!(self, Value::Bool(_)) { None } else { self.as_number() }
    }

    /// The bool, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The text, if it is a UTF-8 string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => s.as_str(),
            _ => None,
        }
    }

    /// The value as rank: numbers and bools count, all else is zero.
    pub fn rank(&self) -> f64 {
        self.as_number().unwrap_or(0.0)
    }
}

/// Same type and same content; reals by bits, so that a value equals itself.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Undefined, Value::Undefined) | (Value::Error, Value::Error) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Real(a), Value::Real(b)) | (Value::RelTime(a), Value::RelTime(b)) => {
                a.to_bits() == b.to_bits()
            }
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.items == b.items,
            (Value::Ad(a), Value::Ad(b)) => a.ad == b.ad,
            (Value::AbsTime(a), Value::AbsTime(b)) => a == b,
            _ => false,
        }
    }
}

macro_rules! value_from {
    ($($from:ty => |$v:ident| $to:expr;)*) => { $(
        impl From<$from> for Value {
            fn from($v: $from) -> Value {
                $to
            }
        }
    )* };
}

value_from! {
    bool => |v| Value::Bool(v);
    i64 => |v| Value::Int(v);
    i32 => |v| Value::Int(i64::from(v));
    u32 => |v| Value::Int(i64::from(v));
    f64 => |v| Value::Real(v);
    &str => |v| Value::Str(v.into());
    String => |v| Value::Str(v.into());
    Str => |v| Value::Str(v);
    AbsTime => |v| Value::AbsTime(v);
    List => |v| Value::List(v);
    ClassAd => |v| Value::Ad(AdValue { ad: v, frame: FrameId::NONE });
}
