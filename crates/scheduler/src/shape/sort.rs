//! The procs of a cluster sorted by what sets them apart for matching.

use std::collections::HashMap;
use std::sync::Arc;

use classad::{ClassAd, Name};
use model::{JobTemplate, ProcSet};

use super::ads::{
    ASKED, always_matter, base_text, full_text, is_rarely_looked_at, matched_ad, names, numbered,
    varies_by_proc,
};
use super::{Key, REMEMBERED, SAMPLES, SORTED_ANEW, STEPS_PER_SUBMIT, ShapeId, Shapes, Sorting, Unsorted};
use crate::accounts::Accounts;
use crate::price::{CLUSTER_BYTES, Price};
use crate::queue::Part;

impl Shapes {
    /// Sorts the procs of a cluster that was accepted. Should machines have begun to look at so much of its jobs that there are
    /// too many kinds of them, they are sorted by what always counts, and each is judged by the first of its part.
    pub(crate) fn parts_of_accepted(
        &mut self,
        owner: &str,
        cluster: u32,
        template: &JobTemplate,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> (Vec<Part>, Sorting) {
        if let Ok(parts) = self.parts(owner, cluster, template, accounts, now_ms) {
            return (parts, Sorting::Exact);
        }
        let price = Price::new(template, &always_matter(template));
        let groups = priced_groups(template, &always_matter(template)).map(|(groups, ..)| groups);
        let groups = groups.unwrap_or_else(|_| vec![ProcSet::all(template.procs)]);
        let first = |group: &ProcSet| group.first().unwrap_or(0);
        let keys = groups.iter().map(|group| self.key(owner, cluster, template, first(group))).collect();
        let of = (owner, cluster, template);
        let (parts, _) = self.intern_parts_within(of, &price, groups, keys, accounts, now_ms, u64::MAX);
        (parts, Sorting::Coarse)
    }

    /// Sorts a cluster's procs into parts by shape, unless there are too many, or they are too large.
    pub(crate) fn parts(
        &mut self,
        owner: &str,
        cluster: u32,
        template: &JobTemplate,
        accounts: &mut Accounts,
        now_ms: u64,
    ) -> Result<Vec<Part>, Unsorted> {
        let mut matters = always_matter(template);
        let mut anew = 0;
        'sorting: loop {
            let (groups, price, _) = priced_groups(template, &matters)?;
            let mut keys = Vec::with_capacity(groups.len());
            for group in &groups {
                let key = self.key(owner, cluster, template, group.first().unwrap_or(0));
                // What one proc's expressions refer to may set others apart that seemed alike.
                let mut grown = false;
                for (matters, varying) in matters.iter_mut().zip(&template.varying) {
                    let new = !*matters && varies_by_proc(varying) && names(&key.extra, &varying.name);
                    *matters |= new;
                    grown |= new;
                }
                if grown {
                    // Each time may be found out by the last of 10,000 kinds. What is sorted too finely is alike by its text.
                    anew += usize::from(keys.len() > SAMPLES);
                    if anew > SORTED_ANEW {
                        matters = template.varying.iter().map(varies_by_proc).collect();
                    }
                    continue 'sorting;
                }
                keys.push(key);
            }
            let of = (owner, cluster, template);
            let (parts, whole) =
                self.intern_parts_within(of, &price, groups, keys, accounts, now_ms, STEPS_PER_SUBMIT);
            if !whole {
                self.release(&parts);
                return Err(Unsorted::Steps);
            }
            return Ok(parts);
        }
    }

    /// Are the kinds of these groups there already? By samples: whoever submits the same again is not refused for it.
    pub(crate) fn are_known(
        &mut self,
        owner: &str,
        cluster: u32,
        template: &JobTemplate,
        groups: &[ProcSet],
    ) -> bool {
        let step = groups.len().div_ceil(SAMPLES).max(1);
        let mut samples = groups.iter().rev().step_by(step).map(|group| group.first().unwrap_or(0));
        samples.all(|proc| !self.is_new(owner, cluster, template, proc))
    }

    /// The parts of a cluster: groups of procs, and what makes the shape of each. Groups may have the same shape. False when that
    /// takes more than so many steps; then some are missing.
    #[allow(clippy::too_many_arguments)]
    fn intern_parts_within(
        &mut self,
        (owner, cluster, template): (&str, u32, &JobTemplate),
        price: &Price<'_>,
        groups: Vec<ProcSet>,
        keys: Vec<Key>,
        accounts: &mut Accounts,
        now_ms: u64,
        steps: u64,
    ) -> (Vec<Part>, bool) {
        let before = classad::steps_taken();
        let alone = groups.len() == 1;
        let mut parts: Vec<Part> = Vec::new();
        let mut known: HashMap<ShapeId, usize> = HashMap::new();
        for (members, key) in groups.into_iter().zip(keys) {
            if classad::steps_taken().wrapping_sub(before) > steps {
                return (parts, false);
            }
            let of = (owner, cluster, template, members.first().unwrap_or(0));
            let shape = self.intern_key(of, price, key, accounts, now_ms);
            let part = Part { shape, idle: members.clone(), members: (!alone).then(|| Box::new(members)) };
            let at = *known.entry(shape).or_insert(parts.len());
            match parts.get_mut(at) {
                None => parts.push(part),
                Some(same) => {
                    same.idle.insert_all(&part.idle);
                    if let Some(members) = &mut same.members {
                        members.insert_all(&part.idle);
                    }
                    self.release(&[part]);
                }
            }
        }
        (parts, true)
    }

    /// True when procs of a cluster may differ in what matters for matching.
    pub(crate) fn may_differ(&mut self, owner: &str, cluster: u32, template: &JobTemplate) -> bool {
        let mut varying = template.varying.iter().filter(|v| varies_by_proc(v)).peekable();
        if varying.peek().is_none() {
            return false;
        }
        let extra = self.key(owner, cluster, template, 0).extra;
        varying.any(|v| !is_rarely_looked_at(&v.name) || names(&extra, &v.name))
    }

    /// What makes one proc's shape: the attributes that count always, and the extra ones that count for this job.
    pub(super) fn key(&mut self, owner: &str, cluster: u32, template: &JobTemplate, proc: u32) -> Key {
        let base = base_text(owner, template, proc);
        if let Some(extra) = self.extras.get(&base) {
            // The same base, and the same values of the extra ones: the same expressions, so no more than these are extra.
            let text = full_text(&base, extra, template, cluster, proc);
            if let Some(shape) = self.by_text.get(&text).and_then(|id| self.all.get(id)) {
                return Key { text, extra: shape.extra.clone(), ad: None };
            }
        }
        #[cfg(test)]
        {
            self.ads_made += 1;
        }
        let ad = matched_ad(owner, template, cluster, proc);
        let extra = self.extra(&ad, &numbered(template));
        let text = full_text(&base, &extra, template, cluster, proc);
        if self.extras.len() >= REMEMBERED {
            self.extras.clear();
        }
        self.extras.insert(base, extra.clone());
        Key { text, extra, ad: Some(ad) }
    }

    /// Which attributes count for a job beside those that always do, in order of name.
    pub(super) fn extra(&mut self, ad: &ClassAd, numbered: &[Name]) -> Arc<[Name]> {
        let mut asked = ASKED.clone();
        asked.extend(self.pool_asks.iter().cloned());
        let decisive = self.engine.decisive(ad, &asked);
        let counts = |name: &Name| decisive.as_ref().is_none_or(|decisive| decisive.contains(name));
        let special = |name: &Name| is_rarely_looked_at(name.as_str()) || numbered.contains(name);
        let mut extra: Vec<Name> =
            ad.iter().map(|(name, _)| name).filter(|n| special(n) && counts(n)).cloned().collect();
        extra.sort();
        extra.into()
    }

    /// Would a job like this one be of a kind that is not there yet?
    pub(crate) fn is_new(&mut self, owner: &str, cluster: u32, template: &JobTemplate, proc: u32) -> bool {
        let text = self.key(owner, cluster, template, proc).text;
        !self.by_text.contains_key(&text)
    }
}

/// The kinds of a cluster as far as they are seen without reading an expression, and what they cost at least.
pub(crate) fn price(template: &JobTemplate) -> Result<(Vec<ProcSet>, u64), Unsorted> {
    priced_groups(template, &always_matter(template)).map(|(groups, _, bytes)| (groups, bytes))
}

/// The procs of a cluster by groups in which the attributes that matter are the same, and what their kinds cost. One kind is as
/// large as a job may be.
fn priced_groups<'a>(
    template: &'a JobTemplate,
    matters: &[bool],
) -> Result<(Vec<ProcSet>, Price<'a>, u64), Unsorted> {
    let set_apart = template.varying.iter().zip(matters).filter(|(_, matters)| **matters).map(|(v, _)| v);
    let groups = crate::alike::groups(template, &set_apart.collect::<Vec<_>>()).ok_or(Unsorted::Ways)?;
    let price = Price::new(template, matters);
    let bytes = price.of_groups(&groups);
    if bytes > CLUSTER_BYTES && groups.len() > 1 {
        return Err(Unsorted::Bytes(bytes));
    }
    Ok((groups, price, bytes))
}
