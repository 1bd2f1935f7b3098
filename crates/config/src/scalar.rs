//! The one door to ClassAd evaluation: a text without any ad around it, to a plain value.

use std::fmt;

/// A plain value.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Refers to something that is not there.
    Undefined,
    /// Cannot be computed.
    Error,
    /// Truth value.
    Bool(bool),
    /// Whole number.
    Int(i64),
    /// Real number.
    Real(f64),
    /// Text, without quotes.
    Text(String),
    /// Anything else, as ClassAd text.
    Other(String),
}

impl Scalar {
    /// The number without its fraction; truth values count as 0 and 1.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            Self::Real(n) if n.is_finite() => Some(*n as i64),
            Self::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    /// The number as a real.
    pub fn as_real(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Real(n) => Some(*n),
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        }
    }

    /// The truth value; a number is true unless it is zero.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(n) => Some(*n != 0),
            Self::Real(n) => Some(*n != 0.0),
            _ => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined => f.write_str("undefined"),
            Self::Error => f.write_str("error"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Real(n) => f.write_str(&classad::Expr::literal(*n).to_string()),
            Self::Text(text) => f.write_str(&model::text::quote(text)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A plain whole number that is larger than any that can be reckoned with; the language itself would make another one of it.
pub fn is_beyond_numbers(text: &str) -> bool {
    let digits = text.trim().trim_start_matches(['-', '+']);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<i64>().is_err()
}

/// Evaluates an expression that refers to no ad and to no time.
pub fn evaluate(text: &str) -> Result<Scalar, String> {
    evaluate_at(text, 0)
}

/// Evaluates an expression that refers to no ad; `now` is what `time()` gives. The error says why the text is not an
/// expression.
pub fn evaluate_at(text: &str, now: i64) -> Result<Scalar, String> {
    let expr = classad::Expr::parse(text.trim()).map_err(|e| format!("{text:?}: {}", e.message()))?;
    Ok(match classad::Scope::new().context(classad::EvalContext::at(now)).eval(&expr) {
        classad::Value::Undefined => Scalar::Undefined,
        classad::Value::Error => Scalar::Error,
        classad::Value::Bool(b) => Scalar::Bool(b),
        classad::Value::Int(n) => Scalar::Int(n),
        classad::Value::Real(n) => Scalar::Real(n),
        classad::Value::Str(text) => Scalar::Text(text.to_string_lossy().into_owned()),
        other => Scalar::Other(classad::Expr::literal(other).to_string()),
    })
}
