//! Where what came back goes. A machine says which files there are; where they may go is decided here, from the job's own ad.

use crate::bundle::is_inside;
use crate::names::{base, join, means_contents, normal};
use crate::{Plan, STDERR, STDOUT};

/// Names that results get at home: `"a = b; c = d/e"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaps(Vec<(String, String)>);

impl Remaps {
    /// Reads them. A backslash before `=` or `;` makes it a part of the name; pairs that are none are passed over.
    pub fn parse(text: &str) -> Self {
        let mut pairs = Vec::new();
        let (mut left, mut right, mut in_right) = (String::new(), String::new(), false);
        let mut chars = text.chars().peekable();
        let mut done = |left: &mut String, right: &mut String| {
            let pair = (left.trim().to_owned(), right.trim().to_owned());
            if !pair.0.is_empty() && !pair.1.is_empty() {
                pairs.push(pair);
            }
            left.clear();
            right.clear();
        };
        while let Some(c) = chars.next() {
            let now = if in_right { &mut right } else { &mut left };
            match c {
                '\\' => match chars.next_if(|next| matches!(next, '=' | ';')) {
                    Some(escaped) => now.push(escaped),
                    None => now.push(c),
                },
                '=' if !in_right => in_right = true,
                ';' => {
                    done(&mut left, &mut right);
                    in_right = false;
                }
                c => now.push(c),
            }
        }
        done(&mut left, &mut right);
        Self(pairs)
    }

    /// What files are called at home.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, to)| to.as_str())
    }

    /// The new name of a file, or of the directory that it is in; and how many bytes at its end are not the user's words.
    pub(crate) fn get(&self, name: &str) -> Option<(String, usize)> {
        let exact = self.0.iter().rev().find(|(from, _)| from == name);
        if let Some((_, to)) = exact {
            return Some((to.clone(), 0));
        }
        self.0.iter().rev().find_map(|(from, to)| {
            let rest = name.strip_prefix(from.as_str())?.strip_prefix('/')?;
            Some((format!("{}/{rest}", to.trim_end_matches('/')), rest.len()))
        })
    }
}

/// Directories that are made for a name of the user's are his alone.
const OWN_MODE: u32 = 0o700;

/// Where one entry goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Absolute path.
    pub path: Vec<u8>,
    /// The mode of directories on the way to it, which are made if they are missing; `None` when they are not.
    pub made_mode: Option<u32>,
    /// It is one of the two outputs: other results of the same name give way.
    pub is_stream: bool,
    /// So many bytes at the end of the path are the job's choice and not its user's: no link is followed there.
    pub chosen: usize,
}

/// Where an entry of this path goes; an error when the job's ad does not provide for it.
pub fn place(plan: &Plan, path: &[u8]) -> Result<Target, String> {
    let shown = || model::text::one_line(&String::from_utf8_lossy(path), 300);
    if !is_inside(path) {
        return Err(format!("{:?} is no name that a result can have", shown()));
    }
    if let Some(url) = plan.url_of(path) {
        return Err(format!(
            "the job wants {:?} to be sent to {}",
            shown(),
            model::text::one_line(&url, 300)
        ));
    }
    let text = std::str::from_utf8(path).ok();
    let streams = plan.stream_names();
    let stream = text.and_then(|name| streams.iter().position(|stream| stream == name));
    if let Some((to, chosen)) = text.and_then(|name| plan.remaps.get(name)) {
        let path = join(&plan.iwd, &to).into_bytes();
        return Ok(Target { path, made_mode: Some(OWN_MODE), is_stream: stream.is_some(), chosen });
    }
    if let Some(which) = stream
        && let Some(to) = [&plan.stdout, &plan.stderr][which]
    {
        let path = join(&plan.iwd, to).into_bytes();
        return Ok(Target { path, made_mode: Some(OWN_MODE), is_stream: true, chosen: 0 });
    }
    let Some(named) = named(plan, path) else {
        return Err(format!("the job does not ask for {:?} to come back", shown()));
    };
    let mut to = plan.iwd.trim_end_matches('/').as_bytes().to_vec();
    to.push(b'/');
    to.extend_from_slice(path);
    let chosen = path.len() - named;
    Ok(Target { path: to, made_mode: plan.preserve.then_some(0o755), is_stream: false, chosen })
}

/// How much of a result's name the job's list names: the rest of it the job has chosen. `None` when the rules do not lead to such a result.
fn named(plan: &Plan, path: &[u8]) -> Option<usize> {
    let Some(outputs) = &plan.outputs else { return (!path.contains(&b'/')).then_some(0) };
    let of_entry = |entry: &String| {
        let keeps_path = plan.preserve && !entry.starts_with('/');
        let name = match (keeps_path, means_contents(entry)) {
            (true, _) => normal(entry),
            (false, false) => base(&normal(entry)).to_owned(),
            // What is in it stands beside the others.
            (false, true) => String::new(),
        };
        let is_it = |rest: &[u8]| rest.is_empty() || rest.starts_with(b"/");
        match path.strip_prefix(name.as_bytes()) {
            Some(rest) if !name.is_empty() && is_it(rest) => Some(name.len()),
            // Whatever is in it.
            _ => means_contents(entry).then_some(0),
        }
    };
    outputs.iter().filter_map(of_entry).max()
}

/// What a result is called that would overwrite what it must not: the job's log, its submit file, its own standard output.
pub fn beside(path: &[u8], cluster: u32, proc: u32) -> Vec<u8> {
    [path, format!(".{cluster}.{proc}").as_bytes()].concat()
}

/// True for a name that one of the two outputs has in the scratch directory.
pub fn is_stream_name(name: &[u8]) -> bool {
    name == STDOUT.as_bytes() || name == STDERR.as_bytes()
}

#[cfg(test)]
mod tests {
    use classad::ClassAd;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::of(&ClassAd::parse_new(&format!(r#"[Iwd="/w";Cmd="/w/x";{text}]"#)).unwrap())
    }

    fn place_of(plan: &Plan, name: &str) -> String {
        place(plan, name.as_bytes()).map_or_else(|e| e, |t| String::from_utf8_lossy(&t.path).into_owned())
    }

    #[test]
    fn remaps_are_read_and_may_escape() {
        let remaps = Remaps::parse(r"a=a2; b = sub/b2;c\=d=C\=D;e\;f=E\;F;;x=;");
        let wanted = [("a", "a2"), ("b", "sub/b2"), ("c=d", "C=D"), ("e;f", "E;F")];
        assert_eq!(remaps.0, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn results_land_where_the_job_says() {
        let p = plan(r#"Out="logs/o";Err="e";TransferOutputRemaps="x=res/y;d=r;abs=/t/z""#);
        for (name, path) in [
            ("x", "/w/res/y"),
            ("d", "/w/r"),
            ("abs", "/t/z"),
            ("new", "/w/new"),
            ("_condor_stdout", "/w/logs/o"),
            ("_condor_stderr", "/w/e"),
        ] {
            assert_eq!(place_of(&p, name), path);
        }
        assert!(place(&p, b"_condor_stdout").unwrap().is_stream);
        assert!(place_of(&p, "sub/new").contains("does not ask"), "without a list only the top comes back");
        for evil in ["../x", "/etc/passwd", "a/../../b", "", "."] {
            assert!(place(&p, evil.as_bytes()).is_err(), "{evil}");
        }
    }

    #[test]
    fn a_list_is_all_that_a_machine_may_send() {
        let p = plan(r#"TransferOutput="f,sub/g,d";TransferOutputRemaps="d=res""#);
        assert_eq!(place_of(&p, "d/deep/x"), "/w/res/deep/x");
        assert_eq!(place_of(&p, "g"), "/w/g");
        for other in [".bashrc", "sub/g", "ff", "f2/x"] {
            assert!(place_of(&p, other).contains("does not ask"), "{other}");
        }
        let kept = plan(r#"TransferOutput="sub/g,d";PreserveRelativePaths=true"#);
        assert_eq!(place_of(&kept, "sub/g"), "/w/sub/g");
        assert!(place(&kept, b"g").is_err());
        let inside = plan(r#"TransferOutput="d/""#);
        assert_eq!(place_of(&inside, "anything/x"), "/w/anything/x");
        let nothing = plan(r#"TransferOutput="""#);
        assert!(place(&nothing, b"x").is_err());
    }

    #[test]
    fn what_the_job_has_chosen_of_a_path_is_told_from_what_its_user_names() {
        let chosen = |plan: &Plan, name: &str| {
            let target = place(plan, name.as_bytes()).unwrap();
            String::from_utf8(target.path[target.path.len() - target.chosen..].to_vec()).unwrap()
        };
        let listed = plan(r#"Out="o";TransferOutput="f,sub/g,d";TransferOutputRemaps="d/e=res""#);
        for (name, of_job) in
            [("_condor_stdout", ""), ("f", ""), ("g", ""), ("d/x/y", "/x/y"), ("d/e", ""), ("d/e/x", "x")]
        {
            assert_eq!(chosen(&listed, name), of_job, "{name}");
        }
        assert_eq!(chosen(&plan(""), "found"), "found");
        assert_eq!(chosen(&plan(r#"TransferOutput="d/""#), "x/y"), "x/y");
        let kept = plan(r#"TransferOutput="a/b/,c/d";PreserveRelativePaths=true"#);
        assert_eq!((chosen(&kept, "a/b/x"), chosen(&kept, "c/d")), ("/x".into(), String::new()));
    }

    #[test]
    fn a_remap_of_standard_output_wins_over_its_name() {
        let p = plan(r#"Out="o";TransferOutputRemaps="_condor_stdout=z""#);
        assert_eq!(place(&p, b"_condor_stdout").unwrap().path, b"/w/z");
    }
}
