//! ACL: users, what they may do, and what they were refused.
//!
//! | module | |
//! |---|---|
//! | `rules` | the words of SETUSER |
//! | `check` | whether a request is allowed |
//! | `file` | ACL LOAD and SAVE |
//!
//! A request is checked when it is carried out, when it is queued, and when EXEC runs it; one that
//! is under way when the rights change may end. Clients of a user that is deleted are disconnected,
//! and so are those with subscriptions that a change takes.

mod check;
mod file;
mod rules;

pub(super) use check::{Moment, allows, check, may_read_all, note};

use super::table::{Id, find};
use super::{Call, QUOTED_AT_MOST, categories, containers, lower, numbering, quoted};
use crate::numbers::{float_text, integer, integer_argument};
use crate::server::{
    Changed, Client, DEFAULT_USER, Reason, Rights, Scene, Selector, Server, ServerOptions, Space, User,
    hexadecimal,
};
use crate::session::Session;
use crate::wrong::Wrong;
use karstdb::io::report;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

/// Bits that GENPASS makes by default and at most.
const BITS: i64 = 256;
const BITS_AT_MOST: i64 = 4096;
/// Number of entries of ACL LOG without a count.
const ENTRIES: usize = 10;

pub(super) async fn acl(call: &mut Call<'_>) -> Result<(), Wrong> {
    let users = call.server.users();
    match (&*call.word(1), call.args.len()) {
        ("whoami", 2) => call.out.bulk(&call.session.user().name),
        ("users", 2) => {
            let all = users.all();
            call.out.array(all.len());
            all.iter().for_each(|user| call.out.bulk(&user.name));
        }
        ("list", 2) => {
            let all = users.all();
            call.out.array(all.len());
            all.iter().for_each(|user| call.out.bulk(rules::line(&user.name, &user.rights())));
        }
        ("getuser", 3) => match users.find(&call.args[2]) {
            Some(user) => tell_user(call, &user.rights()),
            None => call.out.null(),
        },
        ("setuser", 3..) => set_user(call).await?,
        ("deluser", 3..) => delete_users(call)?,
        ("cat", 2) => {
            call.out.array(categories::ALL.len());
            categories::ALL.iter().for_each(|name| call.out.bulk(name));
        }
        ("cat", 3) => {
            let name = lower(&call.args[2]);
            if !categories::ALL.contains(&&*name) {
                let name = quoted(&call.args[2], QUOTED_AT_MOST);
                return Err(Wrong::err(format_args!("Unknown category '{name}'")));
            }
            let of = numbering::all().iter().filter(|known| known.categories.contains(&&*name));
            let names: Vec<&str> = of.map(|known| &*known.name).collect();
            call.out.array(names.len());
            names.into_iter().for_each(|name| call.out.bulk(name));
        }
        ("genpass", 2..=3) => generate(call)?,
        ("dryrun", 4..) => dry_run(call).await?,
        ("log", 2..=3) => log(call)?,
        ("load", 2) => load(call).await?,
        ("save", 2) => save(call).await?,
        ("help", _) => containers::help(call, Id::Acl),
        (sub, _) => return Err(Wrong::arity(&format!("acl|{sub}"))),
    }
    Ok(())
}

/// Makes a client a user, if name and password are right.
///
/// # Errors
/// They are not.
pub(super) fn authenticate(
    server: &Server,
    session: &Session,
    command: &[u8],
    (name, password): (&[u8], &[u8]),
) -> Result<(), Wrong> {
    let before = session.user();
    if let Some(user) = server.users().authenticate(name, password) {
        session.set_user(user.clone(), true);
        // One that is deleted meanwhile may have missed this client when it disconnected its own.
        if !user.is_deleted() {
            return Ok(());
        }
        session.set_user(before, session.has_authenticated());
    }
    note(server, session, Reason::Password, command, name);
    Err(Wrong::wrong_pass())
}

fn tell_user(call: &mut Call<'_>, rights: &Rights) {
    let out = &mut *call.out;
    out.map(6);
    out.bulk("flags");
    let flags = rules::flags(rights);
    out.set(flags.len());
    flags.into_iter().for_each(|flag| out.bulk(flag));
    out.bulk("passwords");
    out.array(rights.passwords.len());
    rights.passwords.iter().for_each(|hash| out.bulk(hash));
    tell_selector(call, &rights.root);
    call.out.bulk("selectors");
    call.out.array(rights.selectors.len());
    for selector in &rights.selectors {
        call.out.map(3);
        tell_selector(call, selector);
    }
}

fn tell_selector(call: &mut Call<'_>, selector: &Selector) {
    call.out.bulk("commands");
    call.out.bulk(rules::commands(selector));
    call.out.bulk("keys");
    call.out.bulk(rules::keys(selector));
    call.out.bulk("channels");
    call.out.bulk(rules::channels(selector));
}

async fn set_user(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (name, words) = (&call.args[2], &call.args[3..]);
    if !rules::is_name(name) {
        return Err(Wrong::err("Usernames can't contain spaces or null characters"));
    }
    let rules = rules::joined(words).map_err(|begin| {
        let begin = quoted(begin, QUOTED_AT_MOST);
        Wrong::err(format_args!("Unmatched parenthesis in acl selector starting at '{begin}'."))
    })?;
    let all_channels = call.server.settings().allows_channels();
    let change = |rights: &mut Rights| {
        rules.iter().try_for_each(|rule| {
            rules::apply(rights, rule, all_channels).map_err(|fault| {
                let (rule, why) = (quoted(rule, QUOTED_AT_MOST), fault.text());
                Wrong::err(format_args!("Error in ACL SETUSER modifier '{rule}': {why}"))
            })
        })
    };
    if let Some(changed) = call.server.users().change(name, || Rights::new(all_channels), change)? {
        end_taken_subscriptions(call, &changed).await;
    }
    call.out.ok();
    Ok(())
}

/// Disconnects clients; the one of the call gets its reply before.
fn disconnect(call: &Call<'_>, clients: impl IntoIterator<Item = Arc<Client>>) {
    for client in clients {
        match client.id == call.session.client.id {
            true => call.session.close(),
            false => client.end.ring(),
        }
    }
}

/// Connected clients that are a user.
fn clients_of(call: &Call<'_>, user: &Arc<User>) -> Vec<Arc<Client>> {
    let mut clients = call.server.clients().all();
    clients.retain(|client| Arc::ptr_eq(&client.user(), user));
    clients
}

/// Disconnects the clients of a changed user whose subscriptions are not allowed any more.
async fn end_taken_subscriptions(call: &Call<'_>, (user, before): &Changed) {
    let now = user.rights();
    let channels = |rights: &Rights| -> Vec<Vec<u8>> {
        rights.each_selector().flat_map(|selector| selector.channels.clone()).collect()
    };
    if now.each_selector().any(|selector| selector.all_channels) {
        return;
    }
    let (allowed, allowed_before) = (channels(&now), channels(before));
    let had_all = before.each_selector().any(|selector| selector.all_channels);
    if !had_all && allowed_before.iter().all(|pattern| allowed.contains(pattern)) {
        return;
    }
    for client in clients_of(call, user) {
        if has_other_subscriptions(call.server, &client, &allowed).await {
            disconnect(call, [client]);
        }
    }
}

/// True if a client is subscribed to a name that no pattern of `allowed` allows.
async fn has_other_subscriptions(server: &Server, client: &Client, allowed: &[Vec<u8>]) -> bool {
    for space in Space::ALL {
        for name in server.clients().pubsub().names_of(client, space) {
            if !check::has_channel(allowed, &name, space == Space::Patterns).await {
                return true;
            }
        }
    }
    false
}

fn delete_users(call: &mut Call<'_>) -> Result<(), Wrong> {
    let names = &call.args[2..];
    if names.iter().any(|name| name == DEFAULT_USER) {
        return Err(Wrong::err("The 'default' user cannot be removed"));
    }
    let deleted: Vec<_> = names.iter().filter_map(|name| call.server.users().delete(name)).collect();
    deleted.iter().for_each(|user| disconnect(call, clients_of(call, user)));
    call.out.count(deleted.len());
    Ok(())
}

/// GENPASS: random hexadecimal digits, each for four bits.
fn generate(call: &mut Call<'_>) -> Result<(), Wrong> {
    let bits = call.args.get(2).map_or(Some(BITS), |bits| integer(bits));
    let bits = bits.filter(|bits| (1..=BITS_AT_MOST).contains(bits)).ok_or(Wrong::err(
        "ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
         4096",
    ))?;
    let digits = (bits as usize).div_ceil(4);
    // Of the kernel's generator, because passwords are not to be guessed from each other.
    let mut bytes = vec![0; digits.div_ceil(2)];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| Wrong::err(format_args!("no random numbers: /dev/urandom: {error}")))?;
    let mut text = hexadecimal(&bytes);
    text.truncate(digits);
    call.out.bulk(text);
    Ok(())
}

/// DRYRUN: whether a user may send a command, which is not carried out.
async fn dry_run(call: &mut Call<'_>) -> Result<(), Wrong> {
    let user = call.server.users().find(&call.args[2]).ok_or_else(|| {
        let user = quoted(&call.args[2], QUOTED_AT_MOST);
        Wrong::err(format_args!("User '{user}' not found"))
    })?;
    let args = &call.args[3..];
    let spec = find(&args[0]).ok_or_else(|| {
        let name = quoted(&args[0], QUOTED_AT_MOST);
        Wrong::err(format_args!("Command '{name}' not found"))
    })?;
    if !spec.takes(args.len()) {
        return Err(Wrong::arity(spec.name));
    }
    containers::check(spec, args)?;
    match check::refused(&user.rights(), spec, args).await {
        None => call.out.ok(),
        Some(refused) => call.out.bulk(refused.text(&user.name, spec, args, true)),
    }
    Ok(())
}

fn log(call: &mut Call<'_>) -> Result<(), Wrong> {
    let count = match call.args.get(2) {
        None => ENTRIES,
        Some(_) if call.is(2, "reset") => {
            call.server.acl_log().reset();
            call.out.ok();
            return Ok(());
        }
        Some(count) => usize::try_from(integer_argument(count)?).unwrap_or(0),
    };
    let (found, now) = (call.server.acl_log().newest(count), call.server.env().unix_time());
    let out = &mut *call.out;
    out.array(found.len());
    for entry in found {
        let millis = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let reason = match entry.denial.reason {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Password => "auth",
        };
        let place = match entry.denial.place {
            Scene::TopLevel => "toplevel",
            Scene::Transaction => "multi",
            Scene::Script => "lua",
        };
        out.map(10);
        out.bulk("count");
        out.integer(entry.count.cast_signed());
        for (name, text) in [("reason", reason), ("context", place)] {
            out.bulk(name);
            out.bulk(text);
        }
        for (name, text) in [("object", entry.denial.object), ("username", entry.denial.user)] {
            out.bulk(name);
            out.bulk(text);
        }
        out.bulk("age-seconds");
        out.bulk(float_text(now.saturating_sub(entry.last).as_millis() as f64 / 1000.0));
        out.bulk("client-info");
        out.bulk(entry.denial.client);
        let times =
            [("timestamp-created", millis(entry.first)), ("timestamp-last-updated", millis(entry.last))];
        for (name, number) in [("entry-id", entry.id.cast_signed())].into_iter().chain(times) {
            out.bulk(name);
            out.integer(number);
        }
    }
    Ok(())
}

/// The file of LOAD and SAVE.
fn path(call: &Call<'_>) -> Result<PathBuf, Wrong> {
    let path = call.server.acl_file().map(ToOwned::to_owned);
    path.ok_or(Wrong::err(
        "This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
         SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in \
         order to store users in the Redis configuration.",
    ))
}

async fn load(call: &mut Call<'_>) -> Result<(), Wrong> {
    let path = path(call)?;
    let _turn = call.server.files_turn().await;
    let users = file::read(call.server, &path).await.map_err(Wrong::err)?;
    let (kept, deleted) = call.server.users().replace(users);
    deleted.iter().for_each(|user| disconnect(call, clients_of(call, user)));
    for changed in &kept {
        end_taken_subscriptions(call, changed).await;
    }
    call.out.ok();
    Ok(())
}

async fn save(call: &mut Call<'_>) -> Result<(), Wrong> {
    if let Err(error) = file::write(call.server, &path(call)?).await {
        report!(warn, %error, "the users were not saved");
        return Err(Wrong::err(
            "There was an error trying to save the ACLs. Please check the server logs for more information",
        ));
    }
    call.out.ok();
    Ok(())
}

/// Lines of all users for a file of settings, but not of the default one if `requirepass` says all
/// that its line would.
pub(super) fn user_lines(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let mut users = server.users().all();
    users.retain(|user| user.name != DEFAULT_USER || !server.users().is_default_required());
    users.iter().map(|user| rules::words_of(&user.name, &user.rights())).collect()
}

impl Server {
    /// Makes the users of the options, or replaces all by those of the file of users. The server
    /// does this when it starts, before clients connect.
    ///
    /// # Errors
    /// There are both, the file cannot be read, or something in it is wrong; the text says what.
    pub async fn load_users(&self, options: &ServerOptions) -> Result<(), String> {
        if let Some(path) = self.acl_file() {
            if !options.users.is_empty() {
                return Err("users are in the settings, and there is a file of users too".to_owned());
            }
            self.users().replace(file::read(self, path).await?);
        }
        let all_channels = self.settings().allows_channels();
        for (name, made) in file::of_words(&options.users, all_channels)? {
            let set = |rights: &mut Rights| {
                *rights = made;
                Ok::<(), String>(())
            };
            self.users().change(&name, || Rights::new(all_channels), set)?;
        }
        Ok(())
    }
}
