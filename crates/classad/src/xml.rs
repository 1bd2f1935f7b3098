//! Ads as XML, both ways, in the element names HTCondor's tools use: `c` ad, `a` attribute, `l` list,
//! `i r s b un er at rt` literals, `e` any other expression.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::expr::{Expr, Node, Repr};
use crate::limits;
use crate::time;
use crate::value::Value;
use std::fmt::Write as _;

impl ClassAd {
    /// The ad as one `<c>` element.
    ///
    /// ```
    /// let ad = classad::ClassAd::parse_new("[a = 1; b = \"x<y\"]").unwrap();
    /// assert_eq!(ad.to_xml(), "<c><a n=\"a\"><i>1</i></a><a n=\"b\"><s>x&lt;y</s></a></c>");
    /// assert_eq!(classad::ClassAd::parse_xml(&ad.to_xml()).unwrap(), ad);
    /// ```
    pub fn to_xml(&self) -> String {
        let mut out = String::new();
        write_ad(self, &mut out);
        out
    }

    /// Reads the first `<c>` element; a prologue and an enclosing `<classads>` are skipped.
    pub fn parse_xml(text: &str) -> Result<ClassAd, ParseError> {
        let mut reader = Reader { text, pos: 0, depth: 0 };
        loop {
            match reader.tag()? {
                Tag { name: "c", kind: TagKind::Open, .. } => return reader.ad(),
                Tag { name: "c", kind: TagKind::Empty, .. } => return Ok(ClassAd::new()),
                Tag { kind: TagKind::Other, .. } | Tag { name: "classads", kind: TagKind::Open, .. } => {}
                _ => return Err(reader.error("expected `<c>`")),
            }
        }
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Line ends and tabs survive as references only.
            '\n' | '\r' | '\t' => {
                let _ = write!(out, "&#{};", c as u32);
            }
            c => out.push(c),
        }
    }
}

fn element(name: &str, text: &str, out: &mut String) {
    let _ = write!(out, "<{name}>");
    escape(text, out);
    let _ = write!(out, "</{name}>");
}

fn write_ad(ad: &ClassAd, out: &mut String) {
    out.push_str("<c>");
    for (name, expr) in ad.sorted() {
        out.push_str("<a n=\"");
        escape(name.as_str(), out);
        out.push_str("\">");
        write_expr(expr, out);
        out.push_str("</a>");
    }
    out.push_str("</c>");
}

fn write_list(items: &[Expr], out: &mut String) {
    out.push_str("<l>");
    for item in items {
        write_expr(item, out);
    }
    out.push_str("</l>");
}

fn write_expr(expr: &Expr, out: &mut String) {
    let value = match &expr.0 {
        Repr::Lit(value) => value,
        Repr::Node(node) => match &**node {
            Node::List(items) => return write_list(items, out),
            Node::Ad(ad) => return write_ad(ad, out),
            _ => return element("e", &expr.to_string(), out),
        },
    };
    match value {
        Value::Undefined => out.push_str("<un/>"),
        Value::Error => out.push_str("<er/>"),
        Value::Bool(b) => out.push_str(if *b { "<b v=\"t\"/>" } else { "<b v=\"f\"/>" }),
        Value::Int(i) => element("i", &i.to_string(), out),
        Value::Real(r) if r.is_nan() => element("r", "NaN", out),
        Value::Real(r) if r.is_infinite() => element("r", if *r > 0.0 { "INF" } else { "-INF" }, out),
        Value::Real(_) => element("r", &expr.to_string(), out),
        // Text XML cannot carry travels as an expression with escapes.
        Value::Str(s) => match s.as_str() {
            Some(text) if !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
                element("s", text, out);
            }
            _ => element("e", &expr.to_string(), out),
        },
        Value::List(list) => write_list(&list.items, out),
        Value::Ad(ad) => write_ad(&ad.ad, out),
        Value::AbsTime(t) => {
            let mut text = String::new();
            time::format_abs(*t, &mut text);
            element("at", &text, out);
        }
        Value::RelTime(secs) if !secs.is_finite() => element("e", &expr.to_string(), out),
        Value::RelTime(secs) => {
            let mut text = String::new();
            time::format_rel(*secs, &mut text);
            element("rt", &text, out);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TagKind {
    Open,
    Close,
    Empty,
    /// Prologue, document type, comment.
    Other,
}

struct Tag<'t> {
    name: &'t str,
    kind: TagKind,
    attributes: &'t str,
}

struct Reader<'t> {
    text: &'t str,
    pos: usize,
    depth: u32,
}

impl<'t> Reader<'t> {
    fn error(&self, message: &str) -> ParseError {
        let start = self.pos.min(self.text.len());
        ParseError::new(self.text, start..start, message.into(), None)
    }

    /// The next tag; only white space may come before it.
    fn tag(&mut self) -> Result<Tag<'t>, ParseError> {
        let rest = &self.text[self.pos..];
        let trimmed = rest.trim_start();
        self.pos += rest.len() - trimmed.len();
        if !trimmed.starts_with('<') {
            return Err(self.error("expected a tag"));
        }
        if trimmed.starts_with("<!--") {
            let Some(end) = trimmed.find("-->") else {
                return Err(self.error("comment that is never closed"));
            };
            self.pos += end + 3;
            return Ok(Tag { name: "", kind: TagKind::Other, attributes: "" });
        }
        let Some(end) = trimmed.find('>') else { return Err(self.error("tag that is never closed")) };
        let body = &trimmed[1..end];
        self.pos += end + 1;
        if body.starts_with(['?', '!']) {
            return Ok(Tag { name: "", kind: TagKind::Other, attributes: "" });
        }
        let (kind, body) = if let Some(name) = body.strip_prefix('/') {
            (TagKind::Close, name)
        } else if let Some(body) = body.strip_suffix('/') {
            (TagKind::Empty, body)
        } else {
            (TagKind::Open, body)
        };
        let (name, attributes) = body.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((body, ""));
        Ok(Tag { name: name.trim(), kind, attributes })
    }

    fn attribute(&self, tag: &Tag<'t>, name: &str) -> Result<String, ParseError> {
        let missing = || self.error(&format!("tag without attribute `{name}`"));
        let (_, rest) = tag.attributes.split_once(&format!("{name}=")).ok_or_else(missing)?;
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\'')).ok_or_else(missing)?;
        let (value, _) = rest[1..].split_once(quote).ok_or_else(missing)?;
        self.unescape(value)
    }

    fn unescape(&self, text: &str) -> Result<String, ParseError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('&') {
            out.push_str(&rest[..at]);
            let Some((entity, after)) = rest[at + 1..].split_once(';') else {
                return Err(self.error("`&` without `;`"));
            };
            let number = entity.strip_prefix("#x").map(|hex| u32::from_str_radix(hex, 16));
            let number = number.or_else(|| entity.strip_prefix('#').map(str::parse));
            out.push(match (entity, number) {
                ("amp", _) => '&',
                ("lt", _) => '<',
                ("gt", _) => '>',
                ("quot", _) => '"',
                ("apos", _) => '\'',
                (_, Some(Ok(code @ 1..))) => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                _ => return Err(self.error("entity that is not known")),
            });
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The text up to the closing tag of that name.
    fn content(&mut self, name: &str) -> Result<String, ParseError> {
        let rest = &self.text[self.pos..];
        let Some(end) = rest.find('<') else { return Err(self.error("element that is never closed")) };
        let text = self.unescape(&rest[..end])?;
        self.pos += end;
        match self.tag()? {
            Tag { name: closing, kind: TagKind::Close, .. } if closing == name => Ok(text),
            _ => Err(self.error(&format!("expected `</{name}>`"))),
        }
    }

    fn deeper(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > limits::DOCUMENT_DEPTH { Err(self.error("XML is nested too deeply")) } else { Ok(()) }
    }

    fn ad(&mut self) -> Result<ClassAd, ParseError> {
        self.deeper()?;
        let mut ad = ClassAd::new();
        loop {
            let tag = self.tag()?;
            match (tag.name, tag.kind) {
                ("c", TagKind::Close) => break,
                ("a", TagKind::Open) => {
                    let name = self.attribute(&tag, "n")?;
                    let value = self.tag()?;
                    let value = self.value(&value)?;
                    if ad.len() >= limits::AD_ATTRIBUTES {
                        return Err(self.error("ad has too many attributes"));
                    }
                    ad.insert(&name, value);
                    let closing = self.tag()?;
                    if (closing.name, closing.kind) != ("a", TagKind::Close) {
                        return Err(self.error("expected `</a>`"));
                    }
                }
                (_, TagKind::Other) => {}
                _ => return Err(self.error("expected `<a>` or `</c>`")),
            }
        }
        self.depth -= 1;
        Ok(ad)
    }

    fn value(&mut self, tag: &Tag<'t>) -> Result<Expr, ParseError> {
        let literal = |value: Value| Ok(Expr::literal(value));
        match (tag.name, tag.kind) {
            ("un", TagKind::Empty) => literal(Value::Undefined),
            ("er", TagKind::Empty) => literal(Value::Error),
            ("b", TagKind::Empty) => literal(Value::Bool(self.attribute(tag, "v")? == "t")),
            ("s", TagKind::Empty) => literal("".into()),
            ("c", TagKind::Empty) => Ok(ClassAd::new().into()),
            ("c", TagKind::Open) => Ok(self.ad()?.into()),
            ("l", TagKind::Empty) => Ok(Expr::node(Node::List([].into()))),
            ("l", TagKind::Open) => {
                self.deeper()?;
                let mut items = Vec::new();
                loop {
                    let item = self.tag()?;
                    match (item.name, item.kind) {
                        ("l", TagKind::Close) => break,
                        (_, TagKind::Other) => {}
                        _ => items.push(self.value(&item)?),
                    }
                }
                self.depth -= 1;
                Ok(Expr::node(Node::List(items.into())))
            }
            (name @ ("s" | "i" | "r" | "e" | "at" | "rt"), TagKind::Open) => {
                let text = self.content(name)?;
                self.scalar(name, text)
            }
            _ => Err(self.error("element that is not known")),
        }
    }

    fn scalar(&self, name: &str, text: String) -> Result<Expr, ParseError> {
        let bad = |what: &str| self.error(&format!("{what} that cannot be read: `{text}`"));
        let trimmed = text.trim();
        Ok(match name {
            "s" => Expr::literal(text),
            "i" => Expr::literal(trimmed.parse::<i64>().map_err(|_| bad("integer"))?),
            "r" => {
                let (value, used) = crate::number::strtod(trimmed.as_bytes()).ok_or_else(|| bad("number"))?;
                if used != trimmed.len() {
                    return Err(bad("number"));
                }
                Expr::literal(value)
            }
            "at" => Expr::literal(time::parse_abs(trimmed.as_bytes()).ok_or_else(|| bad("time"))?),
            "rt" => {
                Expr::literal(Value::RelTime(time::parse_rel(trimmed.as_bytes()).ok_or_else(|| bad("time"))?))
            }
            _ => Expr::parse(&text).map_err(|e| bad(&format!("expression ({})", e.message())))?,
        })
    }
}
