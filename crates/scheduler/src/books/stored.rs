//! What clusters are kept as: templates that share what they have in common, and the digests that idempotency keys are known by.

use std::sync::Arc;

use model::JobTemplate;

/// Tells templates apart by what their submitter chose: FNV-1a of 32 bits over the encoded template without what the
/// manager stamps on it, which has the time in it, and then its columns. It is in snapshots, so it must never change.
pub(crate) fn template_digest(template: &JobTemplate) -> u32 {
    let mut bare = JobTemplate {
        procs: template.procs,
        per_row: template.per_row,
        shared: template.shared.clone(),
        varying: template.varying.clone(),
        ..JobTemplate::default()
    };
    for name in crate::stamp::NOT_THE_SUBMITTERS {
        bare.remove(name);
    }
    let hash = fnv(0x811c_9dc5, &prost::Message::encode_to_vec(&bare));
    template.columns.iter().fold(hash, |hash, column| fnv(hash, &prost::Message::encode_to_vec(column)))
}

fn fnv(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What an owner's idempotency key is remembered as: FNV-1a of 128 bits over the owner, a zero byte and the key, as four
/// words, the lowest first. It is in snapshots, so it must never change. Users can only collide with themselves, and by
/// chance not before the sun goes out. All zero for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct SubmitKey(pub(crate) [u32; 4]);

/// A template, kept small: jobs that are alike share all but a few attributes.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Whole(Arc<JobTemplate>),
    /// `base` with some shared attributes replaced.
    Like {
        base: Arc<JobTemplate>,
        own: Own,
    },
}

/// Expressions with the indices of their attributes, in one piece: two bytes of index, four of length, the text; again.
#[derive(Debug, Clone)]
pub(crate) struct Own(Box<[u8]>);

impl SubmitKey {
    pub(crate) fn new(owner: &str, key: &str) -> Self {
        if key.is_empty() {
            return Self::default();
        }
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let bytes = owner.bytes().chain([0]).chain(key.bytes());
        Self::from_number(bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn number(self) -> u128 {
        self.0.iter().rev().fold(0, |number, word| number << 32 | u128::from(*word))
    }

    pub(crate) fn from_number(number: u128) -> Self {
        Self([0, 32, 64, 96].map(|shift| (number >> shift) as u32))
    }
}

impl Stored {
    /// As the difference from another; `None` when they differ in more than values.
    pub(crate) fn like(template: &JobTemplate, base: &Arc<JobTemplate>) -> Option<Self> {
        let alike = template.columns.is_empty()
            && (template.procs, template.per_row) == (base.procs, base.per_row)
            && template.varying == base.varying
            && base.columns.is_empty()
            && template.shared.len() == base.shared.len()
            && template.shared.iter().zip(&base.shared).all(|(a, b)| a.name == b.name);
        let differs =
            template.shared.iter().zip(&base.shared).enumerate().filter(|(_, (a, b))| a.expr != b.expr);
        let own = || Own::new(differs.map(|(i, (a, _))| (i as u16, a.expr.as_str())));
        alike.then(|| Self::Like { base: base.clone(), own: own() })
    }

    /// What it is kept as: a template that others may share, and the difference from it.
    pub(crate) fn parts(&self) -> (&Arc<JobTemplate>, &[u8]) {
        match self {
            Self::Whole(template) => (template, &[]),
            Self::Like { base, own } => (base, &own.0),
        }
    }

    /// The template that was kept so.
    pub(crate) fn whole(base: &Arc<JobTemplate>, own: Vec<u8>) -> Arc<JobTemplate> {
        Self::Like { base: base.clone(), own: Own(own.into()) }.get()
    }

    pub(crate) fn get(&self) -> Arc<JobTemplate> {
        match self {
            Self::Whole(template) => template.clone(),
            Self::Like { base, own } if own.0.is_empty() => base.clone(),
            Self::Like { base, own } => {
                let mut template = (**base).clone();
                for (index, expr) in own.iter() {
                    if let Some(attribute) = template.shared.get_mut(usize::from(index)) {
                        expr.clone_into(&mut attribute.expr);
                    }
                }
                Arc::new(template)
            }
        }
    }

    /// How many procs there are, without putting the whole together.
    pub(crate) fn procs(&self) -> u32 {
        match self {
            Self::Whole(template) | Self::Like { base: template, .. } => template.procs,
        }
    }
}

impl Own {
    fn new<'a>(pairs: impl Iterator<Item = (u16, &'a str)>) -> Self {
        let mut bytes = Vec::new();
        for (index, expr) in pairs {
            bytes.extend(index.to_le_bytes());
            bytes.extend((expr.len() as u32).to_le_bytes());
            bytes.extend(expr.bytes());
        }
        Self(bytes.into())
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (index, after) = rest.split_first_chunk()?;
            let (length, after) = after.split_first_chunk()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some((u16::from_le_bytes(*index), std::str::from_utf8(text).ok()?))
        })
    }
}
