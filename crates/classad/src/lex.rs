//! Tokens of the language. The lexer works on demand, one token ahead of the parser, and reports bad text
//! as a token: in the old line syntax whatever follows a complete expression is ignored.

use crate::text::Str;
use crate::value::Value;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    Int(i64),
    Real(f64),
    Str(Str),
    Word(Word),
    /// A plain name; the text is the span.
    Ident,
    /// A name in single quotes.
    Quoted(String),
    Punct(Punct),
    End,
    Bad(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    True,
    False,
    Undefined,
    Error,
    Is,
    Isnt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Punct {
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Lt,
    Le,
    Gt,
    Ge,
    EqEq,
    NotEq,
    Is,
    Isnt,
    AndAnd,
    OrOr,
    Not,
    And,
    Or,
    Xor,
    Tilde,
    Shl,
    Shr,
    Ushr,
    Question,
    Colon,
    Elvis,
    Dot,
    OpenBracket,
    CloseBracket,
    OpenParen,
    CloseParen,
    OpenBrace,
    CloseBrace,
    Comma,
    Semicolon,
    Assign,
}

impl Word {
    pub(crate) fn value(self) -> Option<Value> {
        match self {
            Word::True => Some(Value::Bool(true)),
            Word::False => Some(Value::Bool(false)),
            Word::Undefined => Some(Value::Undefined),
            Word::Error => Some(Value::Error),
            Word::Is | Word::Isnt => None,
        }
    }

    pub(crate) fn of(text: &str) -> Option<Word> {
        const WORDS: [(&str, Word); 6] = [
            ("true", Word::True),
            ("false", Word::False),
            ("undefined", Word::Undefined),
            ("error", Word::Error),
            ("is", Word::Is),
            ("isnt", Word::Isnt),
        ];
        WORDS.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|&(_, word)| word)
    }
}

/// How string literals are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quoting {
    /// C escapes, adjacent literals join.
    New,
    /// Only `\"` is an escape.
    Old,
}

pub(crate) struct Lexer<'a> {
    source: &'a str,
    src: &'a [u8],
    pos: usize,
    quoting: Quoting,
    /// The previous token ends an operand, so a minus that follows is an operator.
    after_operand: bool,
}

const UNTERMINATED_COMMENT: &str = "comment that is never closed";
const UNTERMINATED_STRING: &str = "string that is never closed";

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str, quoting: Quoting) -> Lexer<'a> {
        Lexer { source, src: source.as_bytes(), pos: 0, quoting, after_operand: false }
    }

    pub(crate) fn text(&self, span: &Range<usize>) -> &'a str {
        &self.source[span.clone()]
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.src.get(self.pos + ahead).copied().unwrap_or(0)
    }

    fn space(byte: u8) -> bool {
        matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
    }

    /// Skips white space and comments.
    fn skip(&mut self) -> Result<(), &'static str> {
        loop {
            while Self::space(self.peek(0)) {
                self.pos += 1;
            }
            if self.peek(0) != b'/' {
                return Ok(());
            }
            match self.peek(1) {
                b'/' => {
                    self.pos = self.src[self.pos..]
                        .iter()
                        .position(|&b| b == b'\n')
                        .map_or(self.src.len(), |at| self.pos + at);
                }
                b'*' => {
                    let body = self.pos + 2;
                    match self.src[body..].windows(2).position(|w| w == b"*/") {
                        Some(at) => self.pos = body + at + 2,
                        None => return Err(UNTERMINATED_COMMENT),
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// The next token and where it is.
    pub(crate) fn next(&mut self) -> (Tok, Range<usize>) {
        if let Err(why) = self.skip() {
            let start = self.pos;
            self.pos = self.src.len();
            return (Tok::Bad(why), start..self.src.len());
        }
        let start = self.pos;
        let tok = self.token();
        self.after_operand = match &tok {
            Tok::Int(_) | Tok::Real(_) | Tok::Str(_) | Tok::Ident | Tok::Quoted(_) => true,
            Tok::Word(word) => word.value().is_some(),
            Tok::Punct(p) => {
                matches!(p, Punct::Dot | Punct::CloseParen | Punct::CloseBracket | Punct::CloseBrace)
            }
            Tok::End | Tok::Bad(_) => false,
        };
        let mut end = self.pos;
        if matches!(tok, Tok::Bad(_)) {
            // Spans are cut on character boundaries so that errors can quote the text.
            while !self.source.is_char_boundary(end) {
                end += 1;
            }
            self.pos = end;
        }
        (tok, start..end)
    }

    fn token(&mut self) -> Tok {
        let byte = self.peek(0);
        if self.pos >= self.src.len() {
            return Tok::End;
        }
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
            b'0'..=b'9' => self.number(),
            b'.' => {
                // Two dots in a row are one dot.
                if self.peek(1) == b'.' {
                    self.pos += 1;
                }
                if self.peek(1).is_ascii_digit() { self.number() } else { self.punct() }
            }
            b'-' if !self.after_operand
                && (self.peek(1).is_ascii_digit()
                    || (self.peek(1) == b'.' && self.peek(2).is_ascii_digit())) =>
            {
                self.number()
            }
            b'"' => match self.quoted(b'"') {
                Ok(bytes) => Tok::Str(bytes.into()),
                Err(why) => Tok::Bad(why),
            },
            b'\'' => match self.quoted(b'\'') {
                Ok(bytes) => Tok::Quoted(String::from_utf8_lossy(&bytes).into_owned()),
                Err(why) => Tok::Bad(why),
            },
            _ => self.punct(),
        }
    }

    fn word(&mut self) -> Tok {
        let start = self.pos;
        while matches!(self.peek(0), b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'0'..=b'9') {
            self.pos += 1;
        }
        match Word::of(&self.source[start..self.pos]) {
            Some(word) => Tok::Word(word),
            None => Tok::Ident,
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.pos;
        while self.peek(0).is_ascii_digit() {
            self.pos += 1;
        }
        self.pos - start
    }

    fn number(&mut self) -> Tok {
        let start = self.pos;
        let negative = self.peek(0) == b'-';
        if negative {
            self.pos += 1;
        }
        let first = self.pos;
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.pos += 2;
            let mut count = 0;
            while self.peek(0).is_ascii_hexdigit() {
                self.pos += 1;
                count += 1;
            }
            // A quirk kept for old files: the check for leading zeros does not see past a minus sign.
            return match (negative, count) {
                (true, 1..) => Tok::Int(0),
                _ => Tok::Bad("hexadecimal numbers are not part of the language"),
            };
        }
        self.digits();
        let whole_end = self.pos;
        let mut real = false;
        if self.peek(0) == b'.' {
            self.pos += 1;
            if self.digits() == 0 {
                return Tok::Bad("number without digits after the point");
            }
            real = true;
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.pos += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.pos += 1;
            }
            if self.digits() == 0 {
                return Tok::Bad("number without digits in the exponent");
            }
            real = true;
        }
        let text = &self.source[start..self.pos];
        if real {
            return text.parse().map_or(Tok::Bad("number that cannot be read"), Tok::Real);
        }
        let whole = &self.src[first..whole_end];
        if whole.len() > 1 && whole[0] == b'0' {
            if !negative {
                return Tok::Bad("number with leading zeros");
            }
            if whole.iter().any(|d| *d >= b'8') {
                return Tok::Bad("number with leading zeros that is not octal");
            }
        }
        // Out of range is zero, as in the original.
        Tok::Int(text.parse().unwrap_or(0))
    }

    /// The bytes of a quoted literal; the position is on the opening quote.
    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        self.pos += 1;
        loop {
            if self.pos >= self.src.len() {
                return Err(UNTERMINATED_STRING);
            }
            let byte = self.peek(0);
            self.pos += 1;
            if byte == quote {
                if self.quoting == Quoting::Old {
                    return Ok(out);
                }
                // Adjacent literals with only white space between them are one literal.
                let resume = self.pos;
                while Self::space(self.peek(0)) {
                    self.pos += 1;
                }
                if self.peek(0) == quote && self.pos < self.src.len() {
                    self.pos += 1;
                    continue;
                }
                self.pos = resume;
                return Ok(out);
            }
            match byte {
                b'\\' if self.quoting == Quoting::New => self.escape(&mut out)?,
                b'\\' if quote == b'"' && self.peek(0) == b'"' && !self.at_line_end(1) => {
                    out.push(b'"');
                    self.pos += 1;
                }
                0 => return Err("NUL byte in a string"),
                _ => out.push(byte),
            }
        }
    }

    /// Only white space is left on the line after `ahead` bytes.
    fn at_line_end(&self, ahead: usize) -> bool {
        self.src[self.pos + ahead..].iter().take_while(|b| **b != b'\n').all(|b| Self::space(*b))
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        if self.pos >= self.src.len() {
            return Err(UNTERMINATED_STRING);
        }
        let byte = self.peek(0);
        self.pos += 1;
        let octal = |b: u8| matches!(b, b'0'..=b'7');
        let value = match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let mut value = u32::from(byte - b'0');
                if octal(self.peek(0)) {
                    value = value * 8 + u32::from(self.peek(0) - b'0');
                    self.pos += 1;
                    if value < 32 && octal(self.peek(0)) {
                        value = value * 8 + u32::from(self.peek(0) - b'0');
                        self.pos += 1;
                    }
                }
                if value == 0 {
                    return Err("escape that stands for a NUL byte");
                }
                value as u8
            }
            0 => return Err("NUL byte in a string"),
            other => other,
        };
        out.push(value);
        Ok(())
    }

    fn punct(&mut self) -> Tok {
        const LONG: [(&[u8], Punct); 14] = [
            (b">>>", Punct::Ushr),
            (b"=?=", Punct::Is),
            (b"=!=", Punct::Isnt),
            (b"<<", Punct::Shl),
            (b">>", Punct::Shr),
            (b"<=", Punct::Le),
            (b">=", Punct::Ge),
            (b"==", Punct::EqEq),
            (b"!=", Punct::NotEq),
            (b"&&", Punct::AndAnd),
            (b"||", Punct::OrOr),
            (b"<", Punct::Lt),
            (b">", Punct::Gt),
            (b"=", Punct::Assign),
        ];
        let rest = &self.src[self.pos..];
        if let Some((text, punct)) = LONG.iter().find(|(text, _)| rest.starts_with(text)) {
            self.pos += text.len();
            return Tok::Punct(*punct);
        }
        let byte = self.peek(0);
        self.pos += 1;
        let punct = match byte {
            b'+' => Punct::Plus,
            b'-' => Punct::Minus,
            b'*' => Punct::Star,
            b'/' => Punct::Slash,
            b'%' => Punct::Percent,
            b'!' => Punct::Not,
            b'&' => Punct::And,
            b'|' => Punct::Or,
            b'^' => Punct::Xor,
            b'~' => Punct::Tilde,
            b':' => Punct::Colon,
            b'.' => Punct::Dot,
            b'[' => Punct::OpenBracket,
            b']' => Punct::CloseBracket,
            b'(' => Punct::OpenParen,
            b')' => Punct::CloseParen,
            b'{' => Punct::OpenBrace,
            b'}' => Punct::CloseBrace,
            b',' => Punct::Comma,
            b';' => Punct::Semicolon,
            b'?' => {
                let resume = self.pos;
                while Self::space(self.peek(0)) {
                    self.pos += 1;
                }
                if self.peek(0) == b':' {
                    self.pos += 1;
                    Punct::Elvis
                } else {
                    self.pos = resume;
                    Punct::Question
                }
            }
            _ => return Tok::Bad("character that is not part of the language"),
        };
        Tok::Punct(punct)
    }
}
