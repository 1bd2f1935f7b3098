//! A submit in protobuf, looked through before it is decoded: two bytes on the wire can be a hundred in memory. `json`: the same in
//! JSON.

mod json;

pub use json::decode_request;
use model::{JobTemplate, limits};
use prost::Message as _;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};

/// Fields of `JobTemplate` and `Varying` that are messages.
const SHARED: u32 = 3;
const VARYING: u32 = 4;
const COLUMNS: u32 = 5;
const PIECES: u32 = 2;

/// Decodes a template that has no more parts than any template may have.
pub fn decode_template(bytes: &[u8]) -> Result<JobTemplate, String> {
    count_parts(bytes)?;
    JobTemplate::decode(bytes).map_err(|e| e.to_string())
}

fn count_parts(bytes: &[u8]) -> Result<(), String> {
    let (mut attributes, mut columns) = (0, 0);
    fields(bytes, |field, part| {
        match field {
            SHARED => attributes += 1,
            VARYING => {
                attributes += 1;
                let mut pieces = 0;
                fields(part, |field, _| {
                    pieces += usize::from(field == PIECES);
                    at_most(pieces, limits::PIECES_PER_ATTRIBUTE, "pieces of one attribute")
                })?;
            }
            COLUMNS => columns += 1,
            _ => {}
        }
        at_most(attributes, limits::ATTRIBUTES_PER_AD, "attributes")?;
        at_most(columns, limits::COLUMNS, "columns")
    })
}

fn at_most(count: usize, most: usize, of_what: &str) -> Result<(), String> {
    if count > most { Err(format!("at most {most} {of_what} are allowed")) } else { Ok(()) }
}

/// Goes through a message's fields that have a length; the others have nothing in them to count.
fn fields<'a>(
    mut bytes: &'a [u8],
    mut each: impl FnMut(u32, &'a [u8]) -> Result<(), String>,
) -> Result<(), String> {
    let cut = || "the message ends in the middle of a field".to_owned();
    while bytes.has_remaining() {
        let (field, wire) = decode_key(&mut bytes).map_err(|e| e.to_string())?;
        let skipped = match wire {
            WireType::Varint => {
                decode_varint(&mut bytes).map_err(|e| e.to_string())?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).map_err(|e| e.to_string())?;
                let length = usize::try_from(length).map_err(|_| cut())?;
                each(field, bytes.get(..length).ok_or_else(cut)?)?;
                length
            }
            WireType::StartGroup | WireType::EndGroup => return Err("groups are not for templates".into()),
        };
        bytes = bytes.get(skipped..).ok_or_else(cut)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::template::PieceKind;

    use super::*;

    #[test]
    fn a_template_is_what_it_was() {
        let mut template = JobTemplate::of(3);
        template.set("Cmd", "\"/bin/true\"");
        template.set_varying("Args", vec![PieceKind::Text("x".into()), PieceKind::Column(0)]);
        template.columns.push(["a", "b", "c"].into_iter().collect());
        assert_eq!(decode_template(&template.encode_to_vec()), Ok(template));
    }

    #[test]
    fn a_message_of_countless_empty_parts_is_refused_before_it_is_decoded() {
        let varying = |pieces: usize| {
            let part = [0x12, 0].repeat(pieces);
            let mut whole = vec![0x22];
            prost::encoding::encode_varint(part.len() as u64, &mut whole);
            [whole, part].concat()
        };
        for (bytes, told) in [
            ([0x1a, 0].repeat(5_000), "at most 2000 attributes"),
            ([0x22, 0].repeat(5_000), "at most 2000 attributes"),
            ([0x2a, 0].repeat(5_000), "at most 1000 columns"),
            (varying(5_000), "at most 1000 pieces"),
            (vec![0x2a, 200], "varint"),
            (vec![0x2a, 100], "ends in the middle"),
            (vec![0x1d, 1], "ends in the middle"),
        ] {
            let refused = decode_template(&bytes).unwrap_err();
            assert!(refused.contains(told), "{told}: {refused}");
        }
    }
}
