//! What the configuration says about the store.

use std::time::Duration;

use config::{Config, Diagnostic, Diagnostics};

/// Limits of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// STORE_QUOTA: bytes that the store keeps for one user; 0 for half of the store's room.
    pub user_bytes: u64,
    /// STORE_QUOTA_OBJECTS: objects that the store keeps for one user; 0 for any number.
    pub user_objects: u64,
    /// STORE_LIMIT: bytes of all objects together; 0 for what the disk has.
    pub pool_bytes: u64,
    /// STORE_SPARE: how long an object stays that nobody needs; others may want the same.
    pub spare: Duration,
    /// KEEP_RESULTS: how long results of spooled jobs wait to be fetched.
    pub keep: Duration,
    /// STORE and what belongs to it: where objects are, when that is not the manager's directory.
    pub bucket: Option<BucketSettings>,
}

/// A bucket of an S3-compatible server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSettings {
    /// Its name.
    pub bucket: String,
    /// Where this pool's objects are in it.
    pub prefix: String,
    /// STORE_ENDPOINT: the server; empty for Amazon's.
    pub endpoint: String,
    /// STORE_REGION.
    pub region: String,
    /// STORE_ACCESS_KEY_FILE.
    pub access_key_file: String,
    /// STORE_SECRET_KEY_FILE.
    pub secret_key_file: String,
    /// STORE_CA_FILE: whom to believe that he is the server; empty for whom the system believes.
    pub ca_file: String,
}

impl BucketSettings {
    /// Reads STORE; `None` for the manager's own directory.
    fn configured(config: &Config<'_>) -> Result<Option<Self>, Diagnostic> {
        let text = |name: &str| config.text(name).map(|text| text.trim().trim_matches('"').to_owned());
        let store = text("STORE")?;
        if store.is_empty() {
            return Ok(None);
        }
        let wrong = |message: &str| Err(Diagnostic::error(message.to_owned()));
        let Some(place) = store.strip_prefix("s3://") else {
            return wrong("STORE must be s3://BUCKET/PREFIX, or empty for the manager's own directory");
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return wrong("STORE names no bucket: s3://BUCKET/PREFIX");
        }
        let settings = Self {
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
            endpoint: text("STORE_ENDPOINT")?,
            region: text("STORE_REGION")?,
            access_key_file: text("STORE_ACCESS_KEY_FILE")?,
            secret_key_file: text("STORE_SECRET_KEY_FILE")?,
            ca_file: text("STORE_CA_FILE")?,
        };
        let is_url = |url: &str| url.is_empty() || url.starts_with("https://") || url.starts_with("http://");
        if !is_url(&settings.endpoint) {
            return wrong("STORE_ENDPOINT must be a URL: https://HOST:PORT");
        }
        if settings.access_key_file.is_empty() || settings.secret_key_file.is_empty() {
            return wrong(
                "STORE needs STORE_ACCESS_KEY_FILE and STORE_SECRET_KEY_FILE, files that only the manager can read",
            );
        }
        Ok(Some(settings))
    }
}

/// As long as nobody says otherwise.
const SPARE: Duration = Duration::from_secs(600);

/// The same: a disk has only so many names for files.
const OBJECTS: u64 = 1_000_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_bytes: 0,
            user_objects: OBJECTS,
            pool_bytes: 0,
            spare: SPARE,
            keep: Duration::from_secs(864_000),
            bucket: None,
        }
    }
}

impl Settings {
    /// The same for a pool that one user has for himself: there is nobody to leave room for.
    #[must_use]
    pub fn for_one_user(mut self) -> Self {
        if self.user_bytes == 0 {
            self.user_bytes = u64::MAX;
        }
        self
    }

    /// Reads them; any error refuses the whole.
    pub fn configured(config: &Config<'_>) -> Result<Self, Diagnostics> {
        let mut errors = Vec::new();
        let mut number = |name: &str, otherwise: u64| {
            let text = match config.text(name) {
                Ok(text) => text.trim().to_owned(),
                Err(error) => {
                    errors.push(error);
                    return otherwise;
                }
            };
            if text.is_empty() {
                return otherwise;
            }
            let value = config::scalar::evaluate(&text).ok().and_then(|v| v.as_real());
            if let Some(n) = value.filter(|n| n.is_finite() && *n >= 0.0) {
                return n as u64;
            }
            let message = format!("{name} must be a number of at least 0, not {text}");
            errors.push(Diagnostic::error(message));
            otherwise
        };
        let mut settings = Self {
            user_bytes: number("STORE_QUOTA", 0).saturating_mul(1 << 20),
            user_objects: number("STORE_QUOTA_OBJECTS", OBJECTS),
            pool_bytes: number("STORE_LIMIT", 0).saturating_mul(1 << 20),
            spare: Duration::from_secs(number("STORE_SPARE", SPARE.as_secs())),
            keep: Duration::from_secs(number("KEEP_RESULTS", 864_000)),
            bucket: None,
        };
        match BucketSettings::configured(config) {
            Ok(bucket) => settings.bucket = bucket,
            Err(error) => errors.push(error),
        }
        if errors.is_empty() { Ok(settings) } else { Err(Diagnostics(errors)) }
    }
}

#[cfg(test)]
mod tests {
    use config::{Loader, Nothing};

    use super::*;

    fn read(text: &str) -> Result<Settings, Diagnostics> {
        Settings::configured(&Loader::new(&Nothing, "MANAGER").text("test", text).load().unwrap())
    }

    #[test]
    fn settings_are_read_and_nonsense_is_named() {
        assert_eq!(read("").unwrap(), Settings::default());
        let settings = read(
            "STORE_QUOTA = 2 * 3\nSTORE_QUOTA_OBJECTS = 7\nSTORE_LIMIT = 8\nSTORE_SPARE = 0\nKEEP_RESULTS = 9\n",
        );
        let wanted = Settings {
            user_bytes: 6 << 20,
            user_objects: 7,
            pool_bytes: 8 << 20,
            spare: Duration::ZERO,
            keep: Duration::from_secs(9),
            bucket: None,
        };
        assert_eq!(settings.unwrap(), wanted);
        let keys = "STORE_ACCESS_KEY_FILE = /a\nSTORE_SECRET_KEY_FILE = /s\n";
        let bucket = read(&format!("STORE = s3://b/p/q/\n{keys}")).unwrap().bucket.unwrap();
        assert_eq!(
            (bucket.bucket.as_str(), bucket.prefix.as_str(), bucket.region.as_str()),
            ("b", "p/q", "us-east-1")
        );
        for (text, why) in
            [("STORE = /dir", "s3://"), ("STORE = s3:///p", "no bucket"), ("STORE = s3://b", "KEY_FILE")]
        {
            assert!(read(text).unwrap_err().to_string().contains(why), "{text}");
        }
        assert!(read(&format!("STORE = s3://b\nSTORE_ENDPOINT = h:1\n{keys}")).is_err());
        let wrong = read("STORE_QUOTA = -1\n").unwrap_err().to_string();
        assert!(wrong.contains("STORE_QUOTA") && wrong.contains("-1"), "{wrong}");
    }
}
