//! Which jobs are meant, and their ads.

use classad::{ClassAd, Expr, Scope};
use client::{Client, WhichAds};

use crate::Refused;

/// A word on the line that names jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Cluster(u32),
    Job(u32, u32),
    User(String),
}

impl Named {
    /// Anything that is no number names a user, as HTCondor has it.
    pub(crate) fn read(word: &str) -> Self {
        let numbers = || {
            let (cluster, proc) = word.split_once('.')?;
            Some(Self::Job(cluster.parse().ok()?, proc.parse().ok()?))
        };
        match word.parse() {
            Ok(cluster) => Self::Cluster(cluster),
            Err(_) => numbers().unwrap_or_else(|| Self::User(word.to_owned())),
        }
    }

    fn which(&self) -> WhichAds {
        match self {
            Self::Cluster(id) => WhichAds { cluster: Some(*id), ..WhichAds::default() },
            Self::Job(id, proc) => WhichAds { cluster: Some(*id), proc: Some(*proc), ..WhichAds::default() },
            // `alice@pool` is alice.
            Self::User(name) => {
                let name = name.split('@').next().unwrap_or(name).to_owned();
                WhichAds { owner: Some(name), ..WhichAds::default() }
            }
        }
    }
}

/// A number of an ad.
pub(crate) fn number(ad: &ClassAd, name: &str) -> Option<i64> {
    let value = Scope::of(ad).attribute(name);
    value.as_int().or_else(|| value.as_number().map(|n| n as i64))
}

/// A text of an ad.
pub(crate) fn text(ad: &ClassAd, name: &str) -> Option<String> {
    Scope::of(ad).attribute(name).as_str().map(str::to_owned)
}

/// Cluster and proc of an ad.
pub(crate) fn id_of(ad: &ClassAd) -> (i64, i64) {
    (number(ad, "ClusterId").unwrap_or(0), number(ad, "ProcId").unwrap_or(0))
}

/// True when the constraint is true for an ad; undefined is not.
pub(crate) fn satisfies(ad: &ClassAd, constraint: Option<&Expr>, now: i64) -> bool {
    constraint.is_none_or(|expr| Scope::of(ad).now(now).eval(expr).is_true())
}

/// Reads an ad.
pub(crate) fn read_ad(text: &str, domain: &str) -> Result<ClassAd, Refused> {
    let mut ad = ClassAd::parse_new(text).map_err(|e| format!("ERROR: an ad cannot be read: {e}\n"))?;
    complete(&mut ad, domain);
    Ok(ad)
}

/// What HTCondor's ads have besides.
pub(crate) fn complete(ad: &mut ClassAd, domain: &str) {
    if let Some(owner) = self::text(ad, "Owner")
        && self::text(ad, "User").is_none_or(|user| !user.contains('@'))
    {
        ad.insert_str("User", &format!("{owner}@{domain}"));
    }
    for (name, value) in [("MyType", "Job"), ("TargetType", "Machine")] {
        if !ad.contains(name) {
            ad.insert_str(name, value);
        }
    }
}

/// The ads of the jobs in the queue that are named, by their ids; of everybody's when none is.
pub(crate) async fn queued(client: &Client, named: &[Named], domain: &str) -> Result<Vec<ClassAd>, Refused> {
    let whole = [WhichAds::default()];
    let asked: Vec<WhichAds> =
        if named.is_empty() { whole.into() } else { named.iter().map(Named::which).collect() };
    let mut ads = Vec::new();
    for which in asked {
        let mut cursor: Option<String> = None;
        loop {
            let page = client.ads(&which, cursor.as_deref()).await?;
            for text in &page.ads {
                ads.push(read_ad(text, domain)?);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    ads.sort_by_key(id_of);
    ads.dedup_by_key(|ad| id_of(ad));
    Ok(ads)
}

/// A page of the history of what one word names, or of everything.
pub(crate) fn past(named: Option<&Named>, forwards: bool, limit: usize) -> WhichAds {
    WhichAds { forwards, limit, ..named.map(Named::which).unwrap_or_default() }
}
