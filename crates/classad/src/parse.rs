//! The parser: recursive descent for what nests (bounded by the nesting guard), loops for what chains.

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::expr::{BinOp, Call, Expr, Node, Repr, UnOp};
use crate::func::Func;
use crate::lex::{Lexer, Punct, Quoting, Tok, Word};
use crate::limits;
use crate::name::Name;
use crate::share;
use crate::time;
use crate::value::Value;
use std::ops::Range;

/// One expression, nothing after it.
pub(crate) fn expression(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text, Quoting::New)?;
    let expr = parser.expr()?;
    parser.end()?;
    Ok(expr)
}

/// One expression that is going to be an attribute: the tree is shared with others of the same text.
pub(crate) fn attribute(text: &str) -> Result<Expr, ParseError> {
    Ok(share::shared(text.trim(), Quoting::New, expression(text)?))
}

/// One ad in brackets; whatever follows it is ignored.
pub(crate) fn ad(text: &str) -> Result<ClassAd, ParseError> {
    let mut parser = Parser::new(text, Quoting::New)?;
    if parser.tok != Tok::Punct(Punct::OpenBracket) {
        return Err(parser.unexpected("`[`"));
    }
    parser.deeper(3)?;
    parser.bump();
    let mut ad = parser.ad_body(true)?;
    ad.compact();
    Ok(ad)
}

/// An ad in the line syntax; the first bad line is the error.
pub(crate) fn old_ad(text: &str) -> Result<ClassAd, ParseError> {
    let mut ads = vec![ClassAd::new()];
    old_lines(text, Blank::Skipped, &mut ads)?;
    let mut ad = ads.swap_remove(0);
    ad.compact();
    Ok(ad)
}

/// Ads in the line syntax, with blank lines between them.
pub(crate) fn old_ads(text: &str) -> Result<Vec<ClassAd>, ParseError> {
    let mut ads = vec![ClassAd::new()];
    old_lines(text, Blank::EndsAd, &mut ads)?;
    ads.retain(|ad| !ad.is_empty());
    ads.iter_mut().for_each(ClassAd::compact);
    Ok(ads)
}

pub(crate) fn old_ad_lenient(text: &str) -> ClassAd {
    let mut ads = vec![ClassAd::new()];
    // The reader of the original stops at the first bad line and keeps what it has.
    let _ = old_lines(text, Blank::Skipped, &mut ads);
    ads.swap_remove(0)
}

/// What a blank line means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blank {
    Skipped,
    EndsAd,
}

/// Adds lines to the last of the ads, or to new ones.
fn old_lines(text: &str, blank: Blank, ads: &mut Vec<ClassAd>) -> Result<(), ParseError> {
    let mut offset = 0;
    for raw in text.split_inclusive('\n') {
        let start = offset;
        offset += raw.len();
        let line = raw.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        if line.is_empty() && blank == Blank::EndsAd && ads.last().is_some_and(|ad| !ad.is_empty()) {
            ads.push(ClassAd::new());
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = start + (line.as_ptr() as usize - raw.as_ptr() as usize);
        let Some((name, body)) = quoted_name(line).or_else(|| {
            let (name, body) = line.split_once('=')?;
            Some((name.trim().to_owned(), body))
        }) else {
            let hint = Some("write `Name = expression`".into());
            return Err(ParseError::new(text, at..at + line.len(), "line without `=`".into(), hint));
        };
        if name.is_empty() {
            return Err(ParseError::new(text, at..at + 1, "attribute without a name".into(), None));
        }
        let shift = at + (body.as_ptr() as usize - line.as_ptr() as usize);
        let expr = old_expression(body).map_err(|e| {
            let span = e.span();
            ParseError::new(
                text,
                span.start + shift..span.end + shift,
                e.message().into(),
                e.hint().map(Into::into),
            )
        })?;
        if let Some(ad) = ads.last_mut() {
            ad.insert(name.as_str(), expr);
        }
    }
    Ok(())
}

/// A name in quotes, as it is printed when it is none by itself (`'a=b' = 1`), and what follows the equals sign.
fn quoted_name(line: &str) -> Option<(String, &str)> {
    let mut lexer = Lexer::new(line, Quoting::New);
    let (Tok::Quoted(name), span) = lexer.next() else { return None };
    let body = line[span.end..].trim_start().strip_prefix('=')?;
    Some((name, body))
}

/// The right side of a line: what follows a complete expression is ignored.
pub(crate) fn old_expression(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text, Quoting::Old)?;
    let expr = parser.expr()?;
    // A literal alone on its line loses the spelling `relTime("..")`.
    match expr.as_node() {
        Some(Node::RelLit(secs)) => Ok(Expr::literal(*secs)),
        _ => Ok(share::shared(text.trim(), Quoting::Old, expr)),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    source: &'a str,
    tok: Tok,
    span: Range<usize>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str, quoting: Quoting) -> Result<Parser<'a>, ParseError> {
        if source.len() > limits::SOURCE_BYTES {
            let message = format!("text is longer than {} bytes", limits::SOURCE_BYTES);
            return Err(ParseError::new("", 0..0, message, None));
        }
        let mut lexer = Lexer::new(source, quoting);
        let (tok, span) = lexer.next();
        Ok(Parser { lexer, source, tok, span, depth: 0 })
    }

    fn bump(&mut self) -> Tok {
        let (tok, span) = self.lexer.next();
        self.span = span;
        std::mem::replace(&mut self.tok, tok)
    }

    fn eat(&mut self, punct: Punct) -> bool {
        let found = self.tok == Tok::Punct(punct);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, punct: Punct, what: &str) -> Result<(), ParseError> {
        if self.eat(punct) { Ok(()) } else { Err(self.unexpected(what)) }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        if self.tok == Tok::End {
            return Ok(());
        }
        Err(self.unexpected("an operator or the end of the expression"))
    }

    fn error(&self, span: Range<usize>, message: String, hint: Option<String>) -> ParseError {
        ParseError::new(self.source, span, message, hint)
    }

    fn unexpected(&self, expected: &str) -> ParseError {
        let text = self.lexer.text(&self.span);
        let (message, hint) = match &self.tok {
            Tok::Bad(why) => (format!("{why}: `{}`", shorten(text)), bad_hint(why, text)),
            Tok::End => (format!("expected {expected}, found the end of the text"), None),
            _ => (format!("expected {expected}, found `{}`", shorten(text)), token_hint(&self.tok, text)),
        };
        self.error(self.span.clone(), message, hint)
    }

    fn deeper(&mut self, cost: u32) -> Result<(), ParseError> {
        self.depth += cost;
        if self.depth > limits::PARSE_DEPTH {
            return Err(self.error(self.span.clone(), "expression is nested too deeply".into(), None));
        }
        Ok(())
    }

    fn expr(&mut self) -> Result<Expr, ParseError> {
        self.deeper(1)?;
        let condition = self.binary(2)?;
        let expr = if self.eat(Punct::Question) {
            let yes = self.expr()?;
            self.expect(Punct::Colon, "`:` of the conditional")?;
            let no = self.expr()?;
            Expr::node(Node::Ternary(condition, yes, no))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Precedence climbing: operators that bind at least as tightly as `min`.
    fn binary(&mut self, min: u8) -> Result<Expr, ParseError> {
        let mut left = self.unary()?;
        while let Some(op) = binary_op(&self.tok) {
            if op.level() < min {
                break;
            }
            self.bump();
            let right = self.binary(op.level() + 1)?;
            left = Expr::node(Node::Binary(op, left, right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, ParseError> {
        let op = match self.tok {
            Tok::Punct(Punct::Minus) => UnOp::Minus,
            Tok::Punct(Punct::Plus) => UnOp::Plus,
            Tok::Punct(Punct::Not) => UnOp::Not,
            Tok::Punct(Punct::Tilde) => UnOp::BitNot,
            _ => {
                self.deeper(1)?;
                let expr = self.postfix()?;
                self.depth -= 1;
                return Ok(expr);
            }
        };
        self.deeper(1)?;
        self.bump();
        let operand = self.unary()?;
        self.depth -= 1;
        Ok(Expr::node(Node::Unary(op, operand)))
    }

    fn postfix(&mut self) -> Result<Expr, ParseError> {
        self.deeper(1)?;
        let mut expr = self.primary()?;
        loop {
            if self.eat(Punct::Dot) {
                let name = self.attribute_name()?;
                name.mention();
                expr = Expr::node(Node::Select(expr, name));
            } else if self.eat(Punct::OpenBracket) {
                let index = self.expr()?;
                self.expect(Punct::CloseBracket, "`]`")?;
                expr = Expr::node(Node::Subscript(expr, index));
            } else if self.eat(Punct::Elvis) {
                let other = self.postfix()?;
                expr = Expr::node(Node::Elvis(expr, other));
            } else {
                break;
            }
        }
        self.depth -= 1;
        Ok(expr)
    }

    fn attribute_name(&mut self) -> Result<Name, ParseError> {
        let span = self.span.clone();
        match &self.tok {
            Tok::Ident => {
                self.bump();
                Ok(Name::new(self.lexer.text(&span)))
            }
            Tok::Quoted(name) => {
                let name = Name::new(name);
                self.bump();
                Ok(name)
            }
            _ => Err(self.unexpected("an attribute name")),
        }
    }

    fn primary(&mut self) -> Result<Expr, ParseError> {
        match &self.tok {
            Tok::Int(_) | Tok::Real(_) | Tok::Str(_) => {
                let value = match self.bump() {
                    Tok::Int(i) => Value::Int(i),
                    Tok::Real(r) => Value::Real(r),
                    Tok::Str(s) => Value::Str(s),
                    _ => Value::Error,
                };
                Ok(Expr(Repr::Lit(value)))
            }
            Tok::Word(word) => match word.value() {
                Some(value) => {
                    self.bump();
                    Ok(Expr(Repr::Lit(value)))
                }
                None => Err(self.unexpected("a value")),
            },
            Tok::Ident | Tok::Quoted(_) => {
                let start = self.span.start;
                let name = self.attribute_name()?;
                if self.eat(Punct::OpenParen) {
                    return self.call(name, start);
                }
                name.mention();
                Ok(Expr::node(Node::Ref(name)))
            }
            Tok::Punct(Punct::Dot) => {
                self.bump();
                let name = self.attribute_name()?;
                Ok(Expr::node(Node::RootRef(name)))
            }
            Tok::Punct(Punct::OpenParen) => {
                self.bump();
                let inner = self.expr()?;
                self.expect(Punct::CloseParen, "`)`")?;
                Ok(Expr::node(Node::Paren(inner)))
            }
            Tok::Punct(Punct::OpenBrace) => {
                self.bump();
                self.list()
            }
            Tok::Punct(Punct::OpenBracket) => {
                self.bump();
                Ok(Expr::node(Node::Ad(self.ad_body(false)?)))
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    fn list(&mut self) -> Result<Expr, ParseError> {
        let mut items = Vec::new();
        if !self.eat(Punct::CloseBrace) {
            loop {
                items.push(self.expr()?);
                if self.eat(Punct::CloseBrace) {
                    break;
                }
                self.expect(Punct::Comma, "`,` or `}`")?;
            }
        }
        Ok(Expr::node(Node::List(items.into())))
    }

    fn call(&mut self, name: Name, start: usize) -> Result<Expr, ParseError> {
        let mut args = Vec::new();
        if !self.eat(Punct::CloseParen) {
            loop {
                args.push(self.expr()?);
                if self.eat(Punct::CloseParen) {
                    break;
                }
                if !self.eat(Punct::Semicolon) {
                    self.expect(Punct::Comma, "`,` or `)`")?;
                }
            }
        }
        let func = Func::named(name.as_str());
        if let [arg] = args.as_slice()
            && let Some(Value::Str(text)) = arg.as_literal()
        {
            let bad = |what: &str, hint: &str| {
                self.error(start..self.span.start, format!("{what} that cannot be read"), Some(hint.into()))
            };
            if func == Some(Func::AbsTime) {
                let time = time::parse_abs(text.as_bytes())
                    .ok_or_else(|| bad("absolute time", "write \"2026-01-31T13:00:00Z\""))?;
                return Ok(Expr::literal(time));
            }
            if func == Some(Func::RelTime) {
                let secs = time::parse_rel(text.as_bytes())
                    .ok_or_else(|| bad("relative time", "write \"1+02:03:04\""))?;
                return Ok(Expr::node(Node::RelLit(secs)));
            }
        }
        Ok(Expr::node(Node::Call(Call { name, func, args: args.into() })))
    }

    /// The inside of an ad; the opening bracket is behind us. The last token of an outermost ad is not
    /// looked past, since whatever follows it may be anything.
    fn ad_body(&mut self, outermost: bool) -> Result<ClassAd, ParseError> {
        let mut ad = ClassAd::new();
        let mut semicolons = false;
        loop {
            while self.tok == Tok::Punct(Punct::Semicolon) {
                semicolons = true;
                self.bump();
            }
            if self.tok == Tok::Punct(Punct::CloseBracket) {
                if ad.is_empty() && semicolons {
                    return Err(self.unexpected("an attribute name"));
                }
                if !outermost {
                    self.bump();
                }
                return Ok(ad);
            }
            let name = self.attribute_name()?;
            self.expect(Punct::Assign, "`=`")?;
            let start = self.span.start;
            let expr = self.expr()?;
            let expr = share::shared(self.source[start..self.span.start].trim_end(), Quoting::New, expr);
            if ad.len() >= limits::AD_ATTRIBUTES {
                return Err(self.error(self.span.clone(), "ad has too many attributes".into(), None));
            }
            ad.insert(name, expr);
            if !matches!(self.tok, Tok::Punct(Punct::Semicolon | Punct::CloseBracket)) {
                return Err(self.unexpected("`;` or `]`"));
            }
        }
    }
}

fn binary_op(tok: &Tok) -> Option<BinOp> {
    Some(match tok {
        Tok::Word(Word::Is) => BinOp::Is,
        Tok::Word(Word::Isnt) => BinOp::Isnt,
        Tok::Punct(punct) => match punct {
            Punct::Plus => BinOp::Add,
            Punct::Minus => BinOp::Sub,
            Punct::Star => BinOp::Mul,
            Punct::Slash => BinOp::Div,
            Punct::Percent => BinOp::Mod,
            Punct::Lt => BinOp::Lt,
            Punct::Le => BinOp::Le,
            Punct::Gt => BinOp::Gt,
            Punct::Ge => BinOp::Ge,
            Punct::EqEq => BinOp::Eq,
            Punct::NotEq => BinOp::Ne,
            Punct::Is => BinOp::Is,
            Punct::Isnt => BinOp::Isnt,
            Punct::AndAnd => BinOp::And,
            Punct::OrOr => BinOp::Or,
            Punct::And => BinOp::BitAnd,
            Punct::Or => BinOp::BitOr,
            Punct::Xor => BinOp::BitXor,
            Punct::Shl => BinOp::Shl,
            Punct::Shr => BinOp::Shr,
            Punct::Ushr => BinOp::Ushr,
            _ => return None,
        },
        _ => return None,
    })
}

fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain("...".chars()).collect()
}

fn bad_hint(why: &str, text: &str) -> Option<String> {
    if why.contains("leading zeros") {
        let plain = text.trim_start_matches('-').trim_start_matches('0');
        return Some(format!("write `{}`", if plain.is_empty() { "0" } else { plain }));
    }
    if why.contains("after the point") {
        return Some(format!("write `{text}0`"));
    }
    if why.contains("never closed") {
        return Some("add the closing quote".into());
    }
    None
}

fn token_hint(tok: &Tok, text: &str) -> Option<String> {
    let hint = match tok {
        Tok::Punct(Punct::Assign) => "compare with `==`",
        Tok::Ident if text.eq_ignore_ascii_case("and") => "write `&&`",
        Tok::Ident if text.eq_ignore_ascii_case("or") => "write `||`",
        Tok::Ident if matches!(text, "K" | "M" | "G" | "T" | "B" | "KB" | "MB" | "GB") => {
            "numbers have no unit suffixes; write the product"
        }
        Tok::Word(_) => "put a reserved word in single quotes to use it as a name",
        _ => return None,
    };
    Some(hint.into())
}
