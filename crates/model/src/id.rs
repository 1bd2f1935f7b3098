//! Ids: each kind its own type, so that one cannot stand for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A job: `cluster.proc`, as users of Condor write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId {
    /// The submission.
    pub cluster: u32,
    /// The job within it, from 0.
    pub proc: u32,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cluster, self.proc)
    }
}

/// What a person may name on a command line: a whole cluster or one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobName {
    /// `17`: every job of cluster 17.
    Cluster(u32),
    /// `17.3`: one job.
    Job(JobId),
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "{cluster}"),
            Self::Job(job) => job.fmt(f),
        }
    }
}

/// A text that names neither a cluster nor a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a job: write CLUSTER (17) or CLUSTER.PROC (17.3)")]
pub struct BadJobName(String);

impl FromStr for JobName {
    type Err = BadJobName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadJobName(crate::text::shorten(text, 60));
        // `parse` alone would also take "+7".
        let number = |part: &str| -> Result<u32, BadJobName> {
            if part.bytes().all(|b| b.is_ascii_digit()) {
                part.parse().map_err(|_| bad())
            } else {
                Err(bad())
            }
        };
        match text.split_once('.') {
            None => Ok(Self::Cluster(number(text)?)),
            Some((cluster, proc)) => Ok(Self::Job(JobId { cluster: number(cluster)?, proc: number(proc)? })),
        }
    }
}

/// The public name of a claim: a number that means nothing without the claim's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId(pub u64);

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The secret half of a claim: 256 random bits. Whoever shows it holds the claim. It has no `Display`, and `Debug`
/// does not print it, so that it cannot slip into a log.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClaimKey(pub [u8; 32]);

impl fmt::Debug for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_names_read_as_they_print() {
        for text in ["17", "17.3", "0.0", "4294967295.4294967295"] {
            assert_eq!(text.parse::<JobName>().unwrap().to_string(), text);
        }
        for text in ["", ".", "1.", ".1", "-1", "+1", "1.2.3", "all", "4294967296", "1 "] {
            assert!(text.parse::<JobName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn keys_do_not_print() {
        assert_eq!(format!("{:?}", ClaimKey([7; 32])), "ClaimKey(secret)");
    }
}
