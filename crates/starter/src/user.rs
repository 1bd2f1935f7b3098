//! Accounts of this machine.

use crate::sys;

pub use model::starter::Account;

/// The account with this name.
pub fn by_name(name: &str) -> Option<Account> {
    sys::account(name)
}

/// The user that this process runs as.
pub fn own_uid() -> u32 {
    sys::own_uid()
}

/// True when this machine has an account for a user.
pub fn has_account(uid: u32) -> bool {
    sys::account_name(uid).is_some()
}

/// The name of a user, or the number where the machine has no name for it.
pub fn name_of(uid: u32) -> String {
    sys::account_name(uid).unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number() {
        let root = by_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(name_of(0), "root");
        assert!(by_name("no such user").is_none() && by_name("a\0b").is_none());
        assert_eq!(name_of(4_294_967_000), "4294967000");
        assert!(has_account(0) && !has_account(4_294_967_000));
    }
}
