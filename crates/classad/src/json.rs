//! Ads as JSON, both ways. What JSON cannot say travels as the string `/Expr(text)/`.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::expr::{Expr, Node, Repr};
use crate::limits;
use crate::value::Value;
use std::fmt::Write as _;

impl ClassAd {
    /// The ad as a JSON object, laid out as HTCondor's tools do.
    ///
    /// ```
    /// let ad = classad::ClassAd::parse_new("[a = 1; b = a + 1]").unwrap();
    /// assert_eq!(ad.to_json(), "{\n  \"a\": 1,\n  \"b\": \"\\/Expr(a + 1)\\/\"\n}");
    /// assert_eq!(classad::ClassAd::parse_json(&ad.to_json()).unwrap(), ad);
    /// ```
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        write_ad(self, 0, &mut out);
        out
    }

    /// Reads an ad from a JSON object.
    pub fn parse_json(text: &str) -> Result<ClassAd, ParseError> {
        let mut reader = Reader { text, pos: 0, depth: 0 };
        reader.space();
        if reader.peek() != Some(b'{') {
            return Err(reader.error("expected a JSON object"));
        }
        let ad = reader.object()?;
        reader.space();
        if reader.pos < text.len() {
            return Err(reader.error("text after the JSON object"));
        }
        Ok(ad)
    }
}

fn newline(indent: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

fn write_ad(ad: &ClassAd, indent: usize, out: &mut String) {
    out.push('{');
    for (at, (name, expr)) in ad.sorted().into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        newline(indent + 2, out);
        write_string(name.as_str(), out);
        out.push_str(": ");
        write_expr(expr, indent + 2, out);
    }
    newline(indent, out);
    out.push('}');
}

fn write_list(items: &[Expr], indent: usize, out: &mut String) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        newline(indent + 2, out);
        write_expr(item, indent + 2, out);
    }
    newline(indent, out);
    out.push(']');
}

fn write_expr(expr: &Expr, indent: usize, out: &mut String) {
    match &expr.0 {
        Repr::Lit(Value::Undefined) => out.push_str("null"),
        Repr::Lit(Value::Bool(b)) => out.push_str(if *b { "true" } else { "false" }),
        Repr::Lit(Value::Int(i)) => {
            let _ = write!(out, "{i}");
        }
        Repr::Lit(Value::Real(r)) if r.is_finite() => out.push_str(&expr.to_old_string()),
        Repr::Lit(Value::Str(s)) => write_string(&s.to_string_lossy(), out),
        Repr::Lit(Value::List(list)) => write_list(&list.items, indent, out),
        Repr::Lit(Value::Ad(ad)) => write_ad(&ad.ad, indent, out),
        Repr::Node(node) if matches!(**node, Node::List(_) | Node::Ad(_)) => match &**node {
            Node::List(items) => write_list(items, indent, out),
            Node::Ad(ad) => write_ad(ad, indent, out),
            _ => {}
        },
        _ => {
            out.push_str("\"\\/Expr(");
            escape(&expr.to_string(), out);
            out.push_str(")\\/\"");
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    pos: usize,
    depth: u32,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.pos += 1;
        }
    }

    fn error(&self, message: &str) -> ParseError {
        let end = (self.pos + 1).min(self.text.len());
        ParseError::new(self.text, self.pos..end, message.into(), None)
    }

    fn expect(&mut self, byte: u8, message: &str) -> Result<(), ParseError> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(self.error(message));
        }
        self.pos += 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > limits::DOCUMENT_DEPTH {
            Err(self.error("JSON is nested too deeply"))
        } else {
            Ok(())
        }
    }

    fn object(&mut self) -> Result<ClassAd, ParseError> {
        self.deeper()?;
        self.pos += 1;
        let mut ad = ClassAd::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.pos += 1;
            self.depth -= 1;
            return Ok(ad);
        }
        loop {
            self.space();
            let name = self.string()?;
            self.expect(b':', "expected `:`")?;
            let value = self.value()?;
            if ad.len() >= limits::AD_ATTRIBUTES {
                return Err(self.error("ad has too many attributes"));
            }
            ad.insert(&name, value);
            self.space();
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b'}') => break,
                _ => return Err(self.error("expected `,` or `}`")),
            }
        }
        self.pos += 1;
        self.depth -= 1;
        Ok(ad)
    }

    fn array(&mut self) -> Result<Expr, ParseError> {
        self.deeper()?;
        self.pos += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.pos += 1;
        } else {
            loop {
                items.push(self.value()?);
                self.space();
                match self.peek() {
                    Some(b',') => self.pos += 1,
                    Some(b']') => break,
                    _ => return Err(self.error("expected `,` or `]`")),
                }
            }
            self.pos += 1;
        }
        self.depth -= 1;
        Ok(Expr::node(Node::List(items.into())))
    }

    fn value(&mut self) -> Result<Expr, ParseError> {
        self.space();
        let word = |word: &str| self.text[self.pos..].starts_with(word);
        let (value, len) = if word("null") {
            (Value::Undefined, 4)
        } else if word("true") {
            (Value::Bool(true), 4)
        } else if word("false") {
            (Value::Bool(false), 5)
        } else {
            return match self.peek() {
                Some(b'{') => Ok(self.object()?.into()),
                Some(b'[') => self.array(),
                Some(b'"') => self.text_value(),
                Some(b'-' | b'0'..=b'9') => self.number(),
                _ => Err(self.error("expected a JSON value")),
            };
        };
        self.pos += len;
        Ok(Expr::literal(value))
    }

    fn number(&mut self) -> Result<Expr, ParseError> {
        let start = self.pos;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.pos += 1;
        }
        let text = &self.text[start..self.pos];
        if let Ok(int) = text.parse::<i64>() {
            return Ok(Expr::literal(int));
        }
        text.parse::<f64>().map(Expr::literal).map_err(|_| self.error("number that cannot be read"))
    }

    /// A string, or an expression in disguise.
    fn text_value(&mut self) -> Result<Expr, ParseError> {
        let start = self.pos;
        let text = self.string()?;
        match text.strip_prefix("/Expr(").and_then(|t| t.strip_suffix(")/")) {
            Some(inner) => Expr::parse(inner).map_err(|e| {
                let message = format!("expression in JSON: {}", e.message());
                ParseError::new(self.text, start..self.pos, message, e.hint().map(Into::into))
            }),
            None => Ok(Expr::literal(text)),
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a JSON string"));
        }
        self.pos += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.pos..];
            let Some(stop) = rest.find(['"', '\\']) else {
                return Err(self.error("string that is never closed"));
            };
            out.push_str(&rest[..stop]);
            self.pos += stop + 1;
            if rest.as_bytes()[stop] == b'"' {
                return Ok(out);
            }
            let escape = self.peek();
            self.pos += 1;
            out.push(match escape {
                Some(b'"') => '"',
                Some(b'\\') => '\\',
                Some(b'/') => '/',
                Some(b'b') => '\u{8}',
                Some(b'f') => '\u{c}',
                Some(b'n') => '\n',
                Some(b'r') => '\r',
                Some(b't') => '\t',
                Some(b'u') => self.unicode()?,
                _ => {
                    self.pos -= 1;
                    return Err(self.error("escape that JSON does not have"));
                }
            });
        }
    }

    fn unicode(&mut self) -> Result<char, ParseError> {
        let first = self.hex4()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.pos..].starts_with("\\u") {
            self.pos += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        match char::from_u32(first) {
            Some('\0') => Err(self.error("NUL in a string")),
            Some(c) => Ok(c),
            None => Ok(char::REPLACEMENT_CHARACTER),
        }
    }

    fn hex4(&mut self) -> Result<u32, ParseError> {
        let digits =
            self.text.get(self.pos..self.pos + 4).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|t| u32::from_str_radix(t, 16).ok());
        let Some(code) = code else { return Err(self.error("expected four hexadecimal digits")) };
        self.pos += 4;
        Ok(code)
    }
}
