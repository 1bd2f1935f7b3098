//! A submit in JSON. What is counted is counted while it is read, so that a few bytes of text never stand for many in memory; where
//! an object is expected nothing else is taken (a list would otherwise be taken for its members in their order), and every member is
//! one that is known.

use std::fmt;
use std::marker::PhantomData;

use model::template::{Attribute, Column, Piece, PieceKind, Varying};
use model::{JobTemplate, limits};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::rest::SubmitRequest;

/// Reads the body of `POST /v1/submit`.
pub fn decode_request(bytes: &[u8]) -> Result<SubmitRequest, String> {
    let Object(request) = serde_json::from_slice::<Object<RequestText>>(bytes).map_err(|e| e.to_string())?;
    let Object(template) = request.template;
    let template = JobTemplate {
        procs: template.procs,
        per_row: template.per_row,
        shared: template.shared.0,
        varying: template.varying.0,
        columns: template.columns.0,
    };
    if request.idempotency_key.as_deref() == Some("") {
        return Err("idempotency_key is empty, so that a repeated submit would be another one; leave it out if that is meant".to_owned());
    }
    Ok(SubmitRequest { template, idempotency_key: request.idempotency_key.unwrap_or_default() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestText {
    template: Object<TemplateText>,
    #[serde(default)]
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateText {
    procs: u32,
    per_row: u32,
    shared: Bounded<AttributeText, { limits::ATTRIBUTES_PER_AD }>,
    varying: Bounded<VaryingText, { limits::ATTRIBUTES_PER_AD }>,
    columns: Bounded<ColumnText, { limits::COLUMNS }>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributeText {
    name: String,
    expr: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VaryingText {
    name: String,
    pieces: Bounded<PieceText, { limits::PIECES_PER_ATTRIBUTE }>,
}

/// A piece without a kind stands for nothing, and three bytes of text for 32 in memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PieceText {
    kind: PieceKind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnText {
    text: String,
    ends: Vec<u32>,
}

/// What is written as an object and becomes something of ours.
trait Written: for<'de> Deserialize<'de> {
    const NAME: &'static str;
    type Becomes;
    fn become_it(self) -> Self::Becomes;
}

impl Written for AttributeText {
    const NAME: &'static str = "shared attributes";
    type Becomes = Attribute;
    fn become_it(self) -> Attribute {
        Attribute { name: self.name, expr: self.expr }
    }
}

impl Written for VaryingText {
    const NAME: &'static str = "varying attributes";
    type Becomes = Varying;
    fn become_it(self) -> Varying {
        Varying { name: self.name, pieces: self.pieces.0 }
    }
}

impl Written for PieceText {
    const NAME: &'static str = "pieces of one attribute";
    type Becomes = Piece;
    fn become_it(self) -> Piece {
        Piece { kind: Some(self.kind) }
    }
}

impl Written for ColumnText {
    const NAME: &'static str = "columns";
    type Becomes = Column;
    fn become_it(self) -> Column {
        Column { text: self.text, ends: self.ends }
    }
}

/// An object, and no list of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// A list of so many objects at most.
struct Bounded<T: Written, const MOST: usize>(Vec<T::Becomes>);

impl<'de, T: Written, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Written, const MOST: usize> Visitor<'de> for Entries<T, MOST> {
            type Value = Bounded<T, MOST>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of {}", T::NAME)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while list.len() < MOST {
                    let Some(Object(entry)) = entries.next_element::<Object<T>>()? else {
                        return Ok(Bounded(list));
                    };
                    list.push(entry.become_it());
                }
                match entries.next_element::<IgnoredAny>()? {
                    None => Ok(Bounded(list)),
                    Some(_) => Err(A::Error::custom(format!("at most {MOST} {} are allowed", T::NAME))),
                }
            }
        }
        deserializer.deserialize_seq(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> JobTemplate {
        let mut template = JobTemplate::of(3);
        template.set("Cmd", "\"/bin/true\"");
        template.set_varying(
            "Args",
            vec![PieceKind::Text("x".into()), PieceKind::Column(0), PieceKind::Proc(true)],
        );
        template.columns.push(["a", "b", "c"].into_iter().collect());
        template
    }

    fn decode(text: &str) -> Result<SubmitRequest, String> {
        decode_request(text.as_bytes())
    }

    #[test]
    fn what_the_document_describes_is_read() {
        let request = SubmitRequest { template: template(), idempotency_key: "k".into() };
        let read = decode(&serde_json::to_string(&request).unwrap()).unwrap();
        assert_eq!((read.template, read.idempotency_key), (request.template, request.idempotency_key));
        let without_key = serde_json::json!({"template": template()}).to_string();
        assert_eq!(decode(&without_key).unwrap().template, template());
    }

    #[test]
    fn lists_for_objects_unknown_members_and_pieces_of_nothing_are_refused_with_their_name() {
        let around = |shared: &str, varying: &str, columns: &str| {
            format!(
                "{{\"template\": {{\"procs\": 1, \"per_row\": 1, \"shared\": [{shared}], \"varying\": [{varying}], \"columns\": [{columns}]}}}}"
            )
        };
        for (text, told) in [
            ("[]".to_owned(), "a JSON object"),
            ("{\"template\": [1, 1, [], [], []]}".to_owned(), "a JSON object"),
            ("{\"template\": {\"procs\": 1, \"queue\": 2}}".to_owned(), "unknown field `queue`"),
            ("{\"template\": {}, \"priority\": 1}".to_owned(), "missing field"),
            (around("[\"A\", \"1\"]", "", ""), "a JSON object"),
            (around("{\"name\": \"A\", \"expr\": \"1\", \"extra\": 1}", "", ""), "unknown field `extra`"),
            (around("", "[\"A\", []]", ""), "a JSON object"),
            (around("", "{\"name\": \"A\", \"pieces\": [[{\"Proc\": true}]]}", ""), "a JSON object"),
            (around("", "{\"name\": \"A\", \"pieces\": [{}]}", ""), "missing field `kind`"),
            (around("", "{\"name\": \"A\", \"pieces\": [{\"kind\": null}]}", ""), "expected value"),
            (around("", "", "[\"\", []]"), "a JSON object"),
            (around("", "", "{\"text\": \"\", \"ends\": [], \"rows\": 1}"), "unknown field `rows`"),
        ] {
            let refused = decode(&text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }

    #[test]
    fn entries_are_counted_while_they_are_read() {
        let list = |entry: &str, count: usize| vec![entry; count].join(",");
        let piece = "{\"kind\":{\"Proc\":true}}";
        let around = |member: &str, entries: String| {
            let mut text = "{\"template\": {\"procs\": 1, \"per_row\": 1".to_owned();
            text.push_str(&format!(", \"{member}\": [{entries}"));
            // Whatever comes behind the entry too many is not looked at.
            text
        };
        let attribute = "{\"name\":\"A\",\"expr\":\"1\"}";
        let varying =
            format!("{{\"name\":\"A\",\"pieces\":[{}", list(piece, limits::PIECES_PER_ATTRIBUTE + 1));
        for (text, told) in [
            (
                around("shared", list(attribute, limits::ATTRIBUTES_PER_AD + 1)),
                "at most 2000 shared attributes",
            ),
            (around("varying", varying), "at most 1000 pieces of one attribute"),
            (
                around("columns", list("{\"text\":\"\",\"ends\":[]}", limits::COLUMNS + 1)),
                "at most 1000 columns",
            ),
        ] {
            let refused = decode(&text).unwrap_err();
            assert!(refused.contains(told), "{told}: {refused}");
        }
    }
}
