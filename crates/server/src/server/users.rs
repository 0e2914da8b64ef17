//! Users of the server and their rights.
//!
//! A user is an object that the sessions of its clients hold. Its rights are a value that is
//! replaced as a whole, so that a change applies to clients that are connected. The numbers of
//! commands are those of `commands::acl`; this module keeps them and does not know what they stand
//! for.
//!
//! Lock order: the list of users, the rights of one. Each is held for a copy or a replacement.

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the user of clients that have not authenticated themselves.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// Maximum number of commands and subcommands that a [`CommandSet`] distinguishes.
pub(crate) const COMMANDS_AT_MOST: usize = 1024;

/// Maximum length of a password in bytes: its hash takes some microseconds of a reactor's thread.
pub(crate) const PASSWORD_AT_MOST: usize = 4096;

/// A set of numbers of commands. The full set has those of commands that there are not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSet([u64; COMMANDS_AT_MOST / 64]);

impl CommandSet {
    pub(crate) const NONE: Self = Self([0; COMMANDS_AT_MOST / 64]);
    pub(crate) const ALL: Self = Self([u64::MAX; COMMANDS_AT_MOST / 64]);

    pub(crate) fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds or removes a number below [`COMMANDS_AT_MOST`].
    pub(crate) fn put(&mut self, number: usize, is_in: bool) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word = *word & !(1 << (number % 64)) | u64::from(is_in) << (number % 64);
        }
    }
}

/// Uses of keys, reading and writing, that a command needs or a pattern grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Uses {
    pub(crate) const BOTH: Self = Self { reads: true, writes: true };
    pub(crate) const READS: Self = Self { reads: true, writes: false };

    /// True if everything of `needed` is in it.
    pub(crate) fn covers(self, needed: Self) -> bool {
        (self.reads || !needed.reads) && (self.writes || !needed.writes)
    }
}

/// Commands, keys and channels that are allowed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) commands: CommandSet,
    /// True if it began with all commands, so that it has those of later versions.
    pub(crate) has_later: bool,
    /// The rules that have made `commands`, without their signs: true to allow.
    pub(crate) rules: Vec<(bool, String)>,
    /// First arguments with which a command is allowed that is not in `commands`, in lower case.
    pub(crate) first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(crate) all_keys: bool,
    pub(crate) keys: Vec<(Uses, Vec<u8>)>,
    pub(crate) all_channels: bool,
    pub(crate) channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Allows nothing; all channels if `all_channels`.
    pub(crate) fn new(all_channels: bool) -> Self {
        Self {
            commands: CommandSet::NONE,
            has_later: false,
            rules: Vec::new(),
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// True if it allows all that there is.
    fn allows_all(&self) -> bool {
        self.commands == CommandSet::ALL && self.all_keys && self.all_channels
    }
}

/// SHA-256 of a password in 64 hexadecimal digits.
pub(crate) fn password_hash(password: &[u8]) -> String {
    hexadecimal(&Sha256::digest(password))
}

/// Two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _never_fails = write!(text, "{byte:02x}");
    }
    text
}

/// Compares in a time that does not depend on the bytes.
fn are_equal(one: &str, other: &str) -> bool {
    let differing = one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    differing == 0 && one.len() == other.len()
}

/// Rights of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) is_on: bool,
    /// Any password is right.
    pub(crate) no_password: bool,
    /// Payloads of RESTORE are checked in any case; kept because the rules name it.
    pub(crate) skips_sanitizing: bool,
    /// Hashes of the passwords, see [`password_hash`].
    pub(crate) passwords: Vec<String>,
    pub(crate) root: Selector,
    /// Further selectors; a command is allowed if one of all allows it.
    pub(crate) selectors: Vec<Selector>,
}

impl Rights {
    /// Rights of a new user: off, without password and commands.
    pub(crate) fn new(all_channels: bool) -> Self {
        Self {
            is_on: false,
            no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::new(all_channels),
            selectors: Vec::new(),
        }
    }

    /// Rights of the default user: everything, without a password.
    pub(crate) fn all() -> Self {
        let mut root = Selector::new(true);
        (root.commands, root.has_later, root.all_keys) = (CommandSet::ALL, true, true);
        Self { is_on: true, no_password: true, root, ..Self::new(true) }
    }

    /// Rights of the default user with this password, as `requirepass` says; empty: none is needed.
    fn required(password: &[u8]) -> Self {
        let mut rights = Self::all();
        rights.set_password(password);
        rights
    }

    /// The root selector and the further ones.
    pub(crate) fn each_selector(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Replaces all passwords by this one; an empty one: any is right.
    fn set_password(&mut self, password: &[u8]) {
        self.no_password = password.is_empty();
        self.passwords.clear();
        if !password.is_empty() {
            self.passwords.push(password_hash(password));
        }
    }

    /// True if a client may become this user with a password of this hash, which is compared with
    /// those of all passwords.
    fn admits(&self, hash: &str) -> bool {
        let is_right = self.passwords.iter().fold(false, |found, right| found | are_equal(right, hash));
        self.is_on && (self.no_password || is_right)
    }
}

/// A user.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    rights: RwLock<Arc<Rights>>,
    /// All commands, keys and channels are allowed.
    is_unrestricted: AtomicBool,
    /// On and without a password: clients are this user without AUTH.
    is_open: AtomicBool,
    is_deleted: AtomicBool,
}

impl User {
    pub(crate) fn new(name: &[u8], rights: Rights) -> Self {
        let user = Self {
            name: name.to_vec(),
            rights: RwLock::new(Arc::new(Rights::new(false))),
            is_unrestricted: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
        };
        user.set(rights);
        user
    }

    /// Its rights as they are now.
    pub(crate) fn rights(&self) -> Arc<Rights> {
        self.rights.read().clone()
    }

    fn set(&self, rights: Rights) {
        let mut now = self.rights.write();
        self.is_unrestricted.store(rights.each_selector().any(Selector::allows_all), Ordering::SeqCst);
        self.is_open.store(rights.is_on && rights.no_password, Ordering::SeqCst);
        *now = Arc::new(rights);
    }

    /// Marks it as deleted and takes its rights, so that what its clients have sent is refused.
    fn end(&self) {
        self.is_deleted.store(true, Ordering::SeqCst);
        self.set(Rights::new(false));
    }

    /// True if nothing needs to be checked.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted.load(Ordering::Relaxed)
    }

    /// True if clients are this user without AUTH.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// True once it was deleted: its clients are being disconnected.
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::SeqCst)
    }
}

/// A user whose rights were replaced or taken, and the rights that it had.
pub(crate) type Changed = (Arc<User>, Arc<Rights>);

/// All users.
#[derive(Debug)]
pub(crate) struct Users {
    list: RwLock<UserList>,
    default: Arc<User>,
}

#[derive(Debug)]
struct UserList {
    /// By their names.
    users: BTreeMap<Vec<u8>, Arc<User>>,
    /// Rights of the default user, as `requirepass` says.
    required: Rights,
}

impl Users {
    /// The user `default`, with everything allowed and this password, if it is not empty.
    pub(crate) fn new(password: &[u8]) -> Self {
        let required = Rights::required(password);
        let default = Arc::new(User::new(DEFAULT_USER, required.clone()));
        let users = BTreeMap::from([(DEFAULT_USER.to_vec(), default.clone())]);
        Self { list: RwLock::new(UserList { users, required }), default }
    }

    /// The user of clients that have not authenticated themselves.
    pub(crate) fn default(&self) -> &Arc<User> {
        &self.default
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.list.read().users.get(name).cloned()
    }

    /// All users, in the order of the bytes of their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.list.read().users.values().cloned().collect()
    }

    /// True if the default user has the rights that `requirepass` says, so that it needs no line in
    /// a file of settings.
    pub(crate) fn is_default_required(&self) -> bool {
        let list = self.list.read();
        *self.default.rights() == list.required
    }

    /// The user that a client becomes with a name and a password; `None` if it may not, or if the
    /// password has more than [`PASSWORD_AT_MOST`] bytes. Takes the time of one hash also if there
    /// is no such user.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        if password.len() > PASSWORD_AT_MOST {
            return None;
        }
        let hash = password_hash(password);
        self.find(name).filter(|user| user.rights().admits(&hash))
    }

    /// Replaces the rights of a user by those that `change` makes of them; a user that is not
    /// there begins with `begin`. Returns what was, unless the user is new.
    ///
    /// # Errors
    /// That of `change`; nothing has changed.
    pub(crate) fn change<E>(
        &self,
        name: &[u8],
        begin: impl FnOnce() -> Rights,
        change: impl FnOnce(&mut Rights) -> Result<(), E>,
    ) -> Result<Option<Changed>, E> {
        let mut list = self.list.write();
        let Some(user) = list.users.get(name) else {
            let mut rights = begin();
            change(&mut rights)?;
            list.users.insert(name.to_vec(), Arc::new(User::new(name, rights)));
            return Ok(None);
        };
        let before = user.rights();
        let mut rights = (*before).clone();
        change(&mut rights)?;
        user.set(rights);
        Ok(Some((user.clone(), before)))
    }

    /// Sets the password of the default user, as `requirepass` says.
    pub(crate) fn set_default_password(&self, password: &[u8]) {
        let mut list = self.list.write();
        list.required = Rights::required(password);
        let mut rights = (*self.default.rights()).clone();
        rights.set_password(password);
        self.default.set(rights);
    }

    /// Deletes a user other than the default one. Returns it if it was there.
    pub(crate) fn delete(&self, name: &[u8]) -> Option<Arc<User>> {
        let mut list = self.list.write();
        if name == DEFAULT_USER {
            return None;
        }
        let user = list.users.remove(name)?;
        user.end();
        Some(user)
    }

    /// Has these users and no others, and the default user as `requirepass` says if it is not among
    /// them.
    /// Returns those that are kept and those that are deleted.
    pub(crate) fn replace(&self, mut by: BTreeMap<Vec<u8>, Rights>) -> (Vec<Changed>, Vec<Arc<User>>) {
        let mut list = self.list.write();
        by.entry(DEFAULT_USER.to_vec()).or_insert_with(|| list.required.clone());
        let (mut kept, mut deleted) = (Vec::new(), Vec::new());
        list.users.retain(|name, user| {
            let is_kept = by.contains_key(name);
            if !is_kept {
                user.end();
                deleted.push(user.clone());
            }
            is_kept
        });
        for (name, rights) in by {
            match list.users.get(&name) {
                Some(user) => {
                    kept.push((user.clone(), user.rights()));
                    user.set(rights);
                }
                None => {
                    list.users.insert(name.clone(), Arc::new(User::new(&name, rights)));
                }
            }
        }
        (kept, deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let cases: [(&[u8], &str); 3] = [
            (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (&[b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        ];
        for (text, hash) in cases {
            assert_eq!(password_hash(text), hash);
        }
        assert!(are_equal("ab", "ab") && !are_equal("ab", "ac") && !are_equal("ab", "a"));
    }

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let mut set = CommandSet::NONE;
        set.put(3, true);
        set.put(COMMANDS_AT_MOST - 1, true);
        set.put(COMMANDS_AT_MOST, true);
        assert!(set.has(3) && set.has(COMMANDS_AT_MOST - 1) && !set.has(COMMANDS_AT_MOST) && !set.has(4));
        set.put(3, false);
        assert!(!set.has(3) && CommandSet::ALL.has(3));
    }

    #[test]
    fn a_client_becomes_a_user_with_one_of_its_passwords() {
        let users = Users::new(b"");
        assert!(users.default().is_open() && users.authenticate(b"default", b"any").is_some());
        users.set_default_password(b"secret");
        assert!(!users.default().is_open() && users.default().is_unrestricted());
        assert!(users.authenticate(b"default", b"any").is_none());
        assert!(users.authenticate(b"default", b"secret").is_some());
        let made = users.change(
            b"me",
            || Rights::new(false),
            |rights| {
                rights.passwords = vec![password_hash(b"1"), password_hash(b"2")];
                Ok::<_, ()>(())
            },
        );
        assert!(made.is_ok_and(|before| before.is_none()));
        assert!(users.authenticate(b"me", b"2").is_none(), "it is off");
        let on = |rights: &mut Rights| {
            rights.is_on = true;
            Ok::<_, ()>(())
        };
        users.change(b"me", || Rights::new(false), on).unwrap();
        let user = users.authenticate(b"me", b"2").unwrap();
        assert!(users.authenticate(b"me", b"3").is_none() && !user.is_unrestricted());
        users
            .change(
                b"me",
                || Rights::new(false),
                |rights| {
                    *rights = Rights::all();
                    Ok::<_, ()>(())
                },
            )
            .unwrap();
        assert!(user.is_unrestricted());
        assert!(users.authenticate(b"me", &[b'x'; PASSWORD_AT_MOST]).is_some());
        assert!(users.authenticate(b"me", &[b'x'; PASSWORD_AT_MOST + 1]).is_none());
        assert!(users.delete(b"default").is_none() && users.delete(b"me").is_some() && user.is_deleted());
        assert!(!user.is_unrestricted() && *user.rights() == Rights::new(false));
    }

    #[test]
    fn users_are_replaced_and_keep_their_objects() {
        let users = Users::new(b"x");
        for name in [b"a", b"b"] {
            users.change(name, || Rights::new(false), |_| Ok::<_, ()>(())).unwrap();
        }
        let a = users.find(b"a").unwrap();
        let to_a = || BTreeMap::from([(b"a".to_vec(), Rights::all())]);
        let (kept, deleted) = users.replace(to_a());
        assert_eq!((kept.len(), deleted.len()), (2, 1), "a and default, and b");
        assert!(a.is_unrestricted() && users.find(b"b").is_none());
        assert!(!users.default().is_open() && users.authenticate(b"default", b"x").is_some());
        users.set_default_password(b"y");
        users.replace(BTreeMap::new());
        assert!(users.authenticate(b"default", b"x").is_none() && !a.is_unrestricted());
        assert!(users.authenticate(b"default", b"y").is_some() && users.is_default_required());
        let add = |rights: &mut Rights| {
            rights.passwords.push(password_hash(b"z"));
            Ok::<_, ()>(())
        };
        users.change(b"default", Rights::all, add).unwrap();
        assert!(!users.is_default_required());
    }
}
