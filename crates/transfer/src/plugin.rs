//! What is said to a transfer plug-in and what it says: HTCondor's protocol, as text.

use classad::{ClassAd, Value};

use crate::fault::Fault;
use crate::urls::Errand;

/// Bytes of what a plug-in says of its files.
pub const ANSWER_BYTES: u64 = 16 << 20;
/// Methods of one plug-in.
const METHODS: usize = 100;

/// What a plug-in is told to move: an ad for each file.
pub fn request(errands: &[Errand]) -> String {
    let mut text = String::new();
    for errand in errands {
        let mut ad = ClassAd::new();
        ad.insert_str("LocalFileName", &String::from_utf8_lossy(&errand.path));
        ad.insert_str("Url", &errand.url);
        text.push_str(&ad.to_exact_string());
        text.push('\n');
    }
    text
}

/// What a plug-in can do: the methods that it serves, in lower case.
pub fn methods(said: &str) -> Result<Vec<String>, String> {
    let ads =
        read_ads(said).map_err(|e| format!("what it says about itself (-classad) cannot be read: {e}"))?;
    let ad = ads.first().ok_or("it says nothing about itself (-classad)")?;
    if !matches!(ad.eval("MultipleFileSupport"), Value::Bool(true)) {
        return Err("it does not take lists of files (MultipleFileSupport)".to_owned());
    }
    let Value::Str(list) = ad.eval("SupportedMethods") else {
        return Err("it names no methods (SupportedMethods)".to_owned());
    };
    let list = list.to_string();
    let methods: Vec<String> = crate::names::list(&list).iter().map(|m| m.to_ascii_lowercase()).collect();
    let is_method = |m: &String| crate::urls::method(&format!("{m}://")).is_some();
    if methods.is_empty() || methods.len() > METHODS || !methods.iter().all(is_method) {
        return Err(format!("its methods make no sense (SupportedMethods = {list:?})"));
    }
    Ok(methods)
}

/// How a plug-in ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The last that it printed, or why it was ended.
    pub said: &'a str,
}

/// What is wrong with what a plug-in did, when something is. `direction` is [`crate::fault::INPUT`] or [`crate::fault::OUTPUT`].
pub fn judge(direction: u32, errands: &[Errand], answer: &str, ending: &Ending<'_>) -> Option<Fault> {
    let Ending { name, code, said } = ending;
    let first = errands.first()?;
    let fail = |errand: &Errand, text: &str| {
        let fault = Fault::of_plugin(direction, &errand.method(), &errand.url, text);
        Some(Fault { errno: subcode(direction, *code), ..fault })
    };
    let ads = read_ads(answer).unwrap_or_default();
    let is_failed = |ad: &ClassAd| !matches!(ad.eval("TransferSuccess"), Value::Bool(true));
    if let Some(failed) = ads.iter().find(|ad| is_failed(ad)) {
        let word = |name: &str| match failed.eval(name) {
            Value::Str(text) => Some(text.to_string()),
            _ => None,
        };
        let why = word("TransferError").filter(|why| !why.trim().is_empty());
        let why = why.unwrap_or_else(|| format!("file transfer plugin {name} does not say why it failed"));
        let url = word("TransferUrl").unwrap_or_default();
        return fail(errands.iter().find(|e| e.url == url).unwrap_or(first), &why);
    }
    let how = match code {
        Some(code) => format!("file transfer plugin {name} exited with code {code}"),
        None => format!("file transfer plugin {name} was killed"),
    };
    let besides = if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) };
    if *code != Some(0) {
        return fail(first, &format!("{how}{besides}"));
    }
    if ads.is_empty() {
        return fail(first, &format!("{how}, no valid classads in output file{besides}"));
    }
    if ads.len() < errands.len() {
        let why = format!("{how}, and told of {} files instead of {}{besides}", ads.len(), errands.len());
        return fail(first, &why);
    }
    None
}

/// As it was recorded: inputs have the wait status, results the exit code.
fn subcode(direction: u32, code: Option<i32>) -> u32 {
    // What says that it failed and ends well has failed with 1.
    let code = code.filter(|code| *code != 0).unwrap_or(1) as u32 & 0xff;
    if direction == crate::fault::INPUT { code << 8 } else { code }
}

/// Ads in either form: in brackets one after another, or lines with empty ones between them.
fn read_ads(text: &str) -> Result<Vec<ClassAd>, String> {
    let text = text.trim();
    if !text.starts_with('[') {
        let ads = ClassAd::parse_old_many(text).map_err(|e| e.to_string())?;
        return Ok(ads.into_iter().filter(|ad| !ad.is_empty()).collect());
    }
    let mut ads = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = end_of_ad(rest).ok_or("an ad does not end")?;
        ads.push(ClassAd::parse_new(&rest[..end]).map_err(|e| e.to_string())?);
        rest = rest[end..].trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    }
    Ok(ads)
}

/// Where the ad in brackets ends with which a text begins.
fn end_of_ad(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_u32, None, false);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), byte) if byte == open => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'[') => depth += 1,
            (None, b']') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{INPUT, OUTPUT};

    fn errand(url: &str) -> Errand {
        Errand { url: url.into(), path: b"/s/x".to_vec() }
    }

    fn judged(direction: u32, answer: &str, code: Option<i32>) -> Option<(u32, String)> {
        let ending = Ending { name: "plug", code, said: "spoke\n" };
        let fault = judge(direction, &[errand("http://h/x"), errand("http://h/y")], answer, &ending)?;
        Some((fault.errno, fault.details()))
    }

    #[test]
    fn what_users_write_stays_inside_its_string() {
        let nasty = errand("http://h/x\"; Evil = true; a=\"\\");
        let text = request(&[nasty.clone(), errand("http://h/y")]);
        let ads = read_ads(&text).unwrap();
        assert_eq!((ads.len(), ads[0].len()), (2, 2), "{text}");
        assert_eq!(ads[0].eval("Url"), Value::from(nasty.url.as_str()));
    }

    #[test]
    fn a_plugin_that_fails_is_quoted() {
        let failed = r#"[ TransferSuccess = true; TransferUrl = "http://h/x" ]
            [ TransferSuccess = false; TransferError = "gone ] away"; TransferUrl = "http://h/y" ]"#;
        let wanted = "gone ] away ( URL file = http://h/y )".to_owned();
        assert_eq!(judged(INPUT, failed, Some(255)), Some((255 << 8, wanted.clone())));
        assert_eq!(judged(OUTPUT, failed, Some(0)), Some((1, wanted)));
        let old = "TransferSuccess = false\nTransferError = \"no\"\n\nTransferSuccess = true\n";
        assert_eq!(judged(OUTPUT, old, Some(2)), Some((2, "no ( URL file = http://h/x )".to_owned())));
    }

    #[test]
    fn silence_is_no_success() {
        let of = |answer, code| judged(INPUT, answer, code).unwrap();
        assert_eq!(of("", Some(0)).0, 256);
        assert!(of("", Some(0)).1.contains("exited with code 0, no valid classads in output file: spoke"));
        assert!(of("[", Some(0)).1.contains("no valid classads"));
        assert!(of("[TransferSuccess=true]", Some(0)).1.contains("told of 1 files instead of 2"));
        assert!(of("[TransferSuccess=true][TransferSuccess=true]", None).1.contains("was killed: spoke"));
        assert_eq!(judged(INPUT, "[TransferSuccess=true]\n[TransferSuccess=true]", Some(0)), None);
    }

    #[test]
    fn plugins_say_what_they_can() {
        let good =
            "MultipleFileSupport = true\nPluginType = \"FileTransfer\"\nSupportedMethods = \"HTTP, box\"\n";
        assert_eq!(methods(good).unwrap(), ["http", "box"]);
        assert_eq!(methods("[MultipleFileSupport=true;SupportedMethods=\"s3\"]").unwrap(), ["s3"]);
        for (said, why) in [
            ("", "nothing"),
            ("SupportedMethods = \"x\"", "MultipleFileSupport"),
            ("MultipleFileSupport = true", "no methods"),
            ("MultipleFileSupport = true\nSupportedMethods = \"a b\"", "no sense"),
            ("# usage", "cannot be read"),
        ] {
            let refused = methods(said).unwrap_err();
            assert!(refused.contains(why) || why == "cannot be read", "{said}: {refused}");
        }
    }
}
