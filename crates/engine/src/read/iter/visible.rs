//! The visible view: reduces internal entries to the newest visible version of each key, without
//! deletions and with operands merged.
//!
//! In: a move (seek, ends, next, previous). Out: the current key and value, or none.
//! [`Visible::go_on`] is called until it no longer stops; it may stop at any entry for a block that
//! has to be fetched, and continues from there.
//!
//! Forward, the first visible entry of a key decides, and older ones are skipped. Backward, entries
//! of a key come from old to new, so the whole key is walked, and the newest visible entry decides
//! at its end; the merging iterator then stands before the key.
//!
//! If a key has more versions than `max_sequential_skip_in_iterations`, the rest is skipped by one
//! seek: forward to behind the key, or to the newest entry that the snapshot sees; backward to its
//! newest visible entry, from which the iterator moves forward, or to before the key.
//!
//! In a column family with timestamps, entries later than the read's timestamp are hidden like
//! those of later writes. With `iter_start_ts` each timestamp of a key is one entry, deletions too.
//!
//! Invariants:
//! - Every turn of a loop begins with `settle` and ends by moving the merging iterator; nothing in
//!   between can stop. A repeated call therefore applies no entry twice.
//! - `key` is the current stored key, or the one whose versions are being skipped.

use crate::read::View;
use crate::read::found_value::{Base, existing_value, without_packed_seqno};
use crate::read::iter::blob_feed::{BlobFeed, Scanned};
use crate::read::iter::index_position::To;
use crate::read::iter::merging::Merging;
use crate::read::iter::readahead::ReadaheadLimits;
use crate::read::iter::{Bounds, NO_PREFIX_FILTER, PrefixFilter};
use crate::read::merge;
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_base::options::ReadOptions;
use karst_base::perf_context::{self, PerfMetric};
use karst_base::stats::Ticker;
use karst_format::comparator::Comparator;
use karst_format::key::{self, InternalKey, SeqNo, ValueType};
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;

#[derive(Debug)]
enum Phase {
    /// At a key, or without a position.
    Rest,
    /// Searching for the next visible key.
    Forward,
    /// Collecting the older operands of `key`, whose newest entry is an operand.
    ForwardOperands,
    /// Walking the versions of `key` from old to new, or looking for the previous key.
    Backward { inside: bool },
    /// During a backward move: forward through `key`, which has many versions, to its newest
    /// visible entry.
    Newest,
    /// Making the value from the entry found.
    Resolve(Base),
}

/// Location of the current value.
#[derive(Debug)]
enum Current {
    /// In the merging iterator's current entry.
    InPlace,
    Held(Value),
}

/// A column family as the user sees it, key by key.
#[derive(Debug)]
pub(super) struct Visible {
    pub(super) merging: Merging,
    snapshot: SeqNo,
    phase: Phase,
    valid: bool,
    key: Vec<u8>,
    current: Current,
    /// The direction in which the merging iterator moves.
    forward: bool,
    /// The merging iterator seeks the caller's target and may consult prefix filters. False if it
    /// turns around or skips entries of one key by a seek of its own, because a table without the
    /// key's prefix may still have keys behind it.
    asks_filters: bool,
    /// The merging iterator has already moved forward past `key` (operands were collected).
    past_key: bool,
    /// Forward: older versions of `key` are to be skipped.
    skipping: bool,
    /// Forward: `key`'s entry has sequence number 0, so there is no older one.
    key_is_oldest: bool,
    /// Number of entries of one key skipped since the last seek.
    skipped: u64,
    /// Number of skipped entries after which the next move is a seek.
    skips_before_seek: u64,
    /// Newest first when moving forward, oldest first when moving backward.
    operands: Vec<Value>,
    /// The child of the merge in which the last blob reference was found.
    blob_child: u32,
    /// Backward: the newest visible entry of `key` so far that is not an operand.
    newest: Base,
    found_in_key: bool,
    skippable: u64,
    target: Vec<u8>,
    /// The prefix that the iteration stays in, with `prefix_same_as_start`.
    prefix: Option<Vec<u8>>,
    blobs: BlobFeed,
    timestamps: Option<Box<Timestamps>>,
    /// Trailer of the entry that decided the current key, if every timestamp is an entry.
    trailer: u64,
}

/// The visible timestamps in a column family with timestamps.
#[derive(Debug)]
struct Timestamps {
    /// Size of a timestamp, in bytes.
    bytes: usize,
    /// Latest visible timestamp.
    read: Vec<u8>,
    /// Earliest visible timestamp, with `iter_start_ts`. Each timestamp is then an entry of its
    /// own.
    start: Option<Vec<u8>>,
    /// Stored user key of the entry that is the base of the value to make.
    base_key: Vec<u8>,
}

/// Target of a seek among the entries of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before all entries.
    BeforeNewest,
    /// The newest entry that the read sees.
    Newest,
    /// The oldest entry.
    Oldest,
}

impl Visible {
    pub(super) fn new(
        merging: Merging,
        snapshot: SeqNo,
        readahead: ReadaheadLimits,
        skips_before_seek: u64,
    ) -> Self {
        Visible {
            merging,
            snapshot,
            phase: Phase::Rest,
            valid: false,
            key: Vec::new(),
            current: Current::InPlace,
            forward: true,
            asks_filters: false,
            past_key: false,
            skipping: false,
            key_is_oldest: false,
            skipped: 0,
            skips_before_seek,
            operands: Vec::new(),
            blob_child: 0,
            newest: Base::Nothing,
            found_in_key: false,
            skippable: 0,
            target: Vec::new(),
            prefix: None,
            blobs: BlobFeed::new(readahead),
            timestamps: None,
            trailer: 0,
        }
    }

    /// Configures the view for a column family with timestamps of `bytes` bytes.
    pub(super) fn with_timestamps(mut self, bytes: usize, options: &ReadOptions) -> Self {
        let read = options.timestamp.clone().unwrap_or_default();
        let start = options.iter_start_ts.clone();
        if start.is_some() {
            // Never seek, because only one entry is skipped and not all of a key.
            self.skips_before_seek = u64::MAX;
        }
        self.timestamps = Some(Box::new(Timestamps { bytes, read, start, base_key: Vec::new() }));
        self
    }

    /// Returns true if each timestamp of a key is an entry of its own.
    pub(super) fn shows_all(&self) -> bool {
        self.timestamps.as_ref().is_some_and(|timestamps| timestamps.start.is_some())
    }

    /// Returns true if an entry with this stored user key belongs to `key`.
    #[inline]
    fn is_of_key(&self, comparator: &Comparator, user_key: &[u8]) -> bool {
        match self.timestamps {
            Some(_) if self.shows_all() => comparator.compare_with_timestamps(user_key, &self.key).is_eq(),
            _ => comparator.equal_user(user_key, &self.key),
        }
    }

    /// Returns true if the read does not see an entry because of its timestamp.
    #[inline]
    fn hides_timestamp(&self, view: &View<'_>, user_key: &[u8]) -> bool {
        let Some(timestamps) = &self.timestamps else { return false };
        let comparator = view.superversion.version().comparator();
        let is_early = |start: &Vec<u8>| {
            comparator.compare_timestamps(comparator.split_timestamp(user_key).1, start).is_lt()
        };
        view.is_later(user_key) || timestamps.start.as_ref().is_some_and(is_early)
    }

    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.valid
    }

    /// The current user key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match &self.timestamps {
            None => &self.key,
            Some(timestamps) => &self.key[..self.key.len() - timestamps.bytes],
        }
    }

    /// The current entry's timestamp.
    pub(super) fn timestamp(&self) -> &[u8] {
        &self.key[self.key().len()..]
    }

    /// Returns the trailer of the current entry; 0 unless every timestamp is an entry.
    pub(super) fn trailer(&self) -> u64 {
        self.trailer
    }

    /// The current value.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        match &self.current {
            Current::InPlace => self.merging.value(),
            Current::Held(value) => value,
        }
    }

    /// The current value, with a pin on its memory.
    pub(super) fn pin_value(&self) -> Value {
        match &self.current {
            Current::InPlace => self.merging.pin_value(),
            Current::Held(value) => value.clone(),
        }
    }

    /// Gives up the position after a failed move, until the next seek.
    #[cold]
    pub(super) fn fail(&mut self) {
        self.rest_nowhere();
    }

    fn start(&mut self, forward: bool, needs: &mut Needs) {
        self.blobs.close(forward, needs);
        self.valid = false;
        self.asks_filters = false;
        self.forward = forward;
        self.current = Current::InPlace;
        self.operands.clear();
        self.newest = Base::Nothing;
        self.found_in_key = false;
        self.skipping = false;
        self.skipped = 0;
        self.skippable = 0;
        self.past_key = false;
        self.phase = if forward { Phase::Forward } else { Phase::Backward { inside: false } };
    }

    /// Starts a move to the first key at or behind `user_key` (or to the first of all).
    pub(super) fn begin_seek(&mut self, user_key: Option<&[u8]>, prefix: Option<Vec<u8>>, needs: &mut Needs) {
        self.start(true, needs);
        self.asks_filters = true;
        self.prefix = prefix;
        match user_key {
            Some(user_key) => {
                self.set_target(user_key, Place::Newest);
                self.merging.begin(To::AtOrAfter, &self.target, needs);
            }
            None => self.merging.begin(To::First, &[], needs),
        }
    }

    /// Starts a move to the last key at or before `user_key`, or before it if it is `excluded` (or
    /// to the last of all).
    pub(super) fn begin_seek_back(
        &mut self,
        user_key: Option<(&[u8], bool)>,
        prefix: Option<Vec<u8>>,
        needs: &mut Needs,
    ) {
        self.start(false, needs);
        self.prefix = prefix;
        match user_key {
            Some((user_key, excluded)) => {
                self.set_target(user_key, if excluded { Place::BeforeNewest } else { Place::Oldest });
                self.merging.begin(To::AtOrBefore, &self.target, needs);
            }
            None => self.merging.begin(To::Last, &[], needs),
        }
    }

    /// Makes `target` the internal key of a place among the entries of the key `bare`, which has no
    /// timestamp.
    #[inline]
    fn set_target(&mut self, bare: &[u8], place: Place) {
        self.target.clear();
        self.target.extend_from_slice(bare);
        if let Some(timestamps) = &self.timestamps {
            match place {
                Place::BeforeNewest => self.target.resize(bare.len() + timestamps.bytes, 0xff),
                Place::Newest => self.target.extend_from_slice(&timestamps.read),
                Place::Oldest => self.target.resize(bare.len() + timestamps.bytes, 0),
            }
        }
        self.end_target(place);
    }

    /// Makes `target` the internal key of a place among the entries of `key`.
    fn set_target_in_key(&mut self, place: Place) {
        let key = std::mem::take(&mut self.key);
        if self.shows_all() {
            self.target.clone_from(&key);
            self.end_target(place);
        } else {
            let timestamp_bytes = self.timestamps.as_ref().map_or(0, |timestamps| timestamps.bytes);
            // Before the first key, `key` is empty and has no timestamp.
            self.set_target(&key[..key.len().saturating_sub(timestamp_bytes)], place);
        }
        self.key = key;
    }

    fn end_target(&mut self, place: Place) {
        let trailer = match place {
            Place::BeforeNewest => u64::MAX,
            Place::Newest => key::pack_trailer(self.snapshot, ValueType::FOR_SEEK),
            Place::Oldest => key::pack_trailer(SeqNo::ZERO, ValueType::Deletion),
        };
        self.target.extend_from_slice(&trailer.to_le_bytes());
    }

    /// Starts a move to the next key. The view must be valid.
    #[inline]
    pub(super) fn begin_next(&mut self, needs: &mut Needs) -> Result<()> {
        debug_assert!(self.valid);
        if !self.forward {
            return self.turn_forward(needs);
        }
        self.valid = false;
        self.current = Current::InPlace;
        self.phase = Phase::Forward;
        self.skipped = 0;
        self.skippable = 0;
        self.skipping = !self.key_is_oldest;
        if self.past_key {
            self.past_key = false;
            self.skipping = true;
            self.operands.clear();
            Ok(())
        } else {
            self.merging.begin_advance()
        }
    }

    #[cold]
    fn turn_forward(&mut self, needs: &mut Needs) -> Result<()> {
        // The merging iterator stands before the key. Seek to the end of the key's entries and skip
        // those that are left.
        self.start(true, needs);
        self.skipping = true;
        self.set_target_in_key(Place::Oldest);
        self.merging.begin(To::AtOrAfter, &self.target, needs);
        Ok(())
    }

    /// Starts a move to the previous key. The view must be valid.
    pub(super) fn begin_prev(&mut self, needs: &mut Needs) {
        debug_assert!(self.valid);
        if self.forward {
            self.start(false, needs);
            self.set_target_in_key(Place::BeforeNewest);
            self.merging.begin(To::AtOrBefore, &self.target, needs);
            return;
        }
        self.valid = false;
        self.current = Current::InPlace;
        self.skippable = 0;
        self.phase = Phase::Backward { inside: false };
    }

    /// Continues the move as far as data in memory allows; `Ok` means that it is complete.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        view: &View<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let prefix = if self.asks_filters { prefix } else { &NO_PREFIX_FILTER };
        loop {
            match self.phase {
                Phase::Rest => return Ok(()),
                Phase::Forward => self.forward(view, needs, prefix, bounds)?,
                Phase::ForwardOperands => self.forward_operands(view, needs, prefix, bounds)?,
                Phase::Backward { .. } => self.backward(view, needs, prefix, bounds)?,
                Phase::Newest => self.newest_of_key(view, needs, prefix, bounds)?,
                Phase::Resolve(_) => self.resolve(view, needs, bounds)?,
            }
        }
    }

    /// Ends the move at `key`.
    #[inline]
    fn rest(&mut self, current: Current) {
        self.current = current;
        self.valid = true;
        self.phase = Phase::Rest;
    }

    /// Ends the move without a position.
    fn rest_nowhere(&mut self) {
        self.valid = false;
        self.phase = Phase::Rest;
    }

    /// Sequence number and type of the merging iterator's entry.
    #[inline]
    fn parse(&self, view: &View<'_>) -> Result<(SeqNo, ValueType)> {
        match InternalKey::parse(self.merging.key()) {
            Ok(parsed) => Ok((parsed.seq, parsed.kind)),
            Err(c) => Err(bad_key(view, self.merging.key(), c)),
        }
    }

    /// Returns true if an entry of `key` is a deletion or under a range tombstone.
    #[inline]
    fn is_gone(&mut self, seq: SeqNo, kind: ValueType) -> bool {
        kind.is_deletion() || self.merging.tombstones.hides(&self.key, seq)
    }

    /// Returns true if the read does not see the merging iterator's entry, which has number `seq`.
    #[inline]
    fn hides(&self, view: &View<'_>, seq: SeqNo) -> bool {
        view.hides(seq, self.snapshot) || self.hides_timestamp(view, key::user_key(self.merging.key()))
    }

    /// Copies the timestamp of the merging iterator's entry, which is of `key`, into `key`.
    #[inline]
    fn note_timestamp(&mut self) {
        if let Some(timestamps) = &self.timestamps {
            let user_key = key::user_key(self.merging.key());
            self.key.truncate(self.key.len() - timestamps.bytes);
            self.key.extend_from_slice(&user_key[user_key.len().saturating_sub(timestamps.bytes)..]);
        }
    }

    /// Counts a skipped entry; fails beyond `max_skippable_internal_keys`.
    #[inline]
    fn skip(&mut self, view: &View<'_>) -> Result<()> {
        perf_context::count(PerfMetric::InternalKeySkippedCount, 1);
        view.ctx.stats().tick(Ticker::NumberIterSkip);
        let limit = view.ctx.options.max_skippable_internal_keys;
        if limit > 0 {
            self.skippable += 1;
            if self.skippable > limit {
                return Err(Error::new(
                    ErrorKind::Incomplete,
                    format!("more than {limit} entries in a row are hidden (max_skippable_internal_keys)"),
                ));
            }
        }
        Ok(())
    }

    /// Backward: drops the entries of `key` found so far, because a newer entry hides them.
    fn forget_older(&mut self, view: &View<'_>) -> Result<()> {
        let base = u64::from(!matches!(self.newest, Base::Nothing));
        self.newest = Base::Nothing;
        self.found_in_key = false;
        let hidden = self.operands.len() as u64 + base;
        self.operands.clear();
        (0..hidden).try_for_each(|_| self.skip(view))
    }

    fn forward(
        &mut self,
        view: &View<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let comparator = view.superversion.version().comparator();
        loop {
            self.merging.settle(&view.ctx, needs, prefix, bounds)?;
            if !self.merging.valid() {
                self.rest_nowhere();
                return Ok(());
            }
            let internal = self.merging.key();
            let InternalKey { user_key, seq, kind } = match InternalKey::parse(internal) {
                Ok(parsed) => parsed,
                Err(c) => return Err(bad_key(view, internal, c).into()),
            };
            if self.skipping && self.is_of_key(comparator, user_key) {
                self.skip(view)?;
                self.skipped += 1;
                if self.skipped > self.skips_before_seek && (seq > SeqNo::ZERO || self.timestamps.is_some()) {
                    self.seek_within_key(view, To::AtOrAfter, Place::Oldest, needs);
                } else {
                    self.merging.begin_advance()?;
                }
                continue;
            }
            self.skipping = false;
            if bounds.upper_excludes(comparator, user_key) || !self.in_prefix(view, user_key) {
                self.rest_nowhere();
                return Ok(());
            }
            let hidden_by_timestamp = self.hides_timestamp(view, user_key);
            if hidden_by_timestamp || view.hides(seq, self.snapshot) {
                perf_context::count(PerfMetric::InternalRecentSkippedCount, 1);
                if self.is_of_key(comparator, user_key) {
                    self.skipped += 1;
                } else {
                    self.key.clear();
                    self.key.extend_from_slice(user_key);
                    self.skipped = 0;
                }
                self.skip(view)?;
                // Seek only if the entry is above the read point: entries below it are hidden for
                // another reason, and a seek would lead back to them.
                let is_above = match self.timestamps {
                    None => seq > self.snapshot,
                    Some(_) => hidden_by_timestamp,
                };
                if self.skipped > self.skips_before_seek && is_above {
                    self.seek_within_key(view, To::AtOrAfter, Place::Newest, needs);
                } else {
                    self.merging.begin_advance()?;
                }
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(user_key);
            self.key_is_oldest = seq == SeqNo::ZERO && self.timestamps.is_none();
            self.skipped = 0;
            if self.shows_all() {
                return self.take_shown(view, seq, kind);
            }
            if self.is_gone(seq, kind) {
                perf_context::count(PerfMetric::InternalDeleteSkippedCount, 1);
                self.skip(view)?;
                self.skipping = !self.key_is_oldest;
                self.merging.begin_advance()?;
                continue;
            }
            return self.take(view, kind);
        }
    }

    /// Returns the base for the current entry, which is neither a deletion nor an operand.
    fn base_of(&mut self, kind: ValueType) -> Result<Base> {
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.base_key.clear();
            timestamps.base_key.extend_from_slice(key::user_key(self.merging.key()));
        }
        Ok(match kind {
            ValueType::Value => Base::Value(self.merging.pin_value()),
            ValueType::BlobIndex => {
                self.blob_child = self.merging.first_child();
                Base::Blob(self.merging.pin_value())
            }
            ValueType::WideColumnEntity => Base::Entity(self.merging.pin_value()),
            ValueType::ValuePreferredSeqno => Base::Value(without_packed_seqno(&self.merging.pin_value())?),
            other => {
                return Err(Error::not_supported(format!(
                    "entry of type {other:?} for key {}",
                    Shown(&self.key)
                )));
            }
        })
    }

    /// Forward, if every timestamp is an entry: ends the move at this entry, regardless of its
    /// type.
    #[cold]
    fn take_shown(&mut self, view: &View<'_>, seq: SeqNo, kind: ValueType) -> Result<(), Stop> {
        self.trailer = key::pack_trailer(seq, kind);
        match kind {
            kind if kind.is_deletion() => self.rest(Current::Held(Value::empty())),
            ValueType::Merge => return Err(self.cannot_show_operands().into()),
            kind => return self.take(view, kind),
        }
        Ok(())
    }

    fn cannot_show_operands(&self) -> Error {
        Error::not_supported(format!("merge operands of key {} with iter_start_ts", Shown(self.key())))
    }

    /// Skips versions of `key` by one seek.
    #[cold]
    fn seek_within_key(&mut self, view: &View<'_>, to: To, place: Place, needs: &mut Needs) {
        view.ctx.stats().tick(Ticker::NumberOfReseeksInIteration);
        self.skipped = 0;
        self.asks_filters = false;
        self.set_target_in_key(place);
        self.merging.begin(to, &self.target, needs);
    }

    /// Backward: skips the newer entries of `key`, which are all invisible, by one seek.
    fn seek_before_key(&mut self, view: &View<'_>, needs: &mut Needs) {
        view.ctx.stats().tick(Ticker::NumberOfReseeksInIteration);
        self.skipped = 0;
        self.set_target_in_key(Place::BeforeNewest);
        self.merging.begin(To::AtOrBefore, &self.target, needs);
    }

    /// Reverses the direction within a key, and keeps the count of skipped entries.
    fn turn(&mut self, forward: bool, needs: &mut Needs) {
        let skippable = self.skippable;
        self.start(forward, needs);
        self.skippable = skippable;
    }

    /// Continues from the newest visible entry of `key` as if the key had been sought; if it is
    /// deleted, moves backward to the previous key.
    fn newest_of_key(
        &mut self,
        view: &View<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let comparator = view.superversion.version().comparator();
        loop {
            self.merging.settle(&view.ctx, needs, prefix, bounds)?;
            let in_key =
                self.merging.valid() && self.is_of_key(comparator, key::user_key(self.merging.key()));
            let found = if in_key { Some(self.parse(view)?) } else { None };
            match found {
                Some((seq, _)) if self.hides(view, seq) => {
                    self.skip(view)?;
                    self.merging.begin_advance()?;
                }
                Some((seq, kind)) if !self.is_gone(seq, kind) => {
                    self.key_is_oldest = seq == SeqNo::ZERO && self.timestamps.is_none();
                    self.note_timestamp();
                    return self.take(view, kind);
                }
                _ => {
                    if in_key {
                        perf_context::count(PerfMetric::InternalDeleteSkippedCount, 1);
                    }
                    self.turn(false, needs);
                    self.seek_before_key(view, needs);
                    return Ok(());
                }
            }
        }
    }

    /// Forward: takes the entry that decides the current key, which is not a deletion.
    #[inline]
    fn take(&mut self, view: &View<'_>, kind: ValueType) -> Result<(), Stop> {
        match kind {
            ValueType::Value => self.rest(Current::InPlace),
            ValueType::Merge => {
                view.superversion.config().merge_operator()?;
                perf_context::count(PerfMetric::InternalMergeCount, 1);
                self.operands.clear();
                self.operands.push(self.merging.pin_value());
                self.past_key = true;
                self.phase = Phase::ForwardOperands;
                self.merging.begin_advance()?;
            }
            other => self.phase = Phase::Resolve(self.base_of(other)?),
        }
        Ok(())
    }

    #[inline]
    fn in_prefix(&self, view: &View<'_>, user_key: &[u8]) -> bool {
        match &self.prefix {
            None => true,
            Some(prefix) => {
                let extractor = view.superversion.config().prefix_extractor.as_ref();
                extractor.and_then(|e| e.prefix(user_key)).is_some_and(|own| own == prefix.as_slice())
            }
        }
    }

    fn forward_operands(
        &mut self,
        view: &View<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let comparator = view.superversion.version().comparator();
        loop {
            self.merging.settle(&view.ctx, needs, prefix, bounds)?;
            if !self.merging.valid() || !self.is_of_key(comparator, key::user_key(self.merging.key())) {
                self.phase = Phase::Resolve(Base::Nothing);
                return Ok(());
            }
            if merge::suffices(&**view.superversion.config().merge_operator()?, &self.operands) {
                self.phase = Phase::Resolve(Base::Nothing);
                return Ok(());
            }
            let (seq, kind) = self.parse(view)?;
            if self.hides(view, seq) {
                self.skip(view)?;
                self.merging.begin_advance()?;
                continue;
            }
            if self.is_gone(seq, kind) {
                self.phase = Phase::Resolve(Base::Nothing);
                return Ok(());
            }
            if kind != ValueType::Merge {
                self.phase = Phase::Resolve(self.base_of(kind)?);
                return Ok(());
            }
            self.operands.push(self.merging.pin_value());
            self.merging.begin_advance()?;
        }
    }

    fn resolve(&mut self, view: &View<'_>, needs: &mut Needs, bounds: &Bounds) -> Result<(), Stop> {
        let Phase::Resolve(base) = &self.phase else { unreachable!("called in this phase only") };
        let scanned = Scanned { view, bounds, snapshot: self.snapshot, child: self.blob_child };
        let (blobs, merging) = (&mut self.blobs, &mut self.merging);
        let stored = self.timestamps.as_ref().map_or(&self.key, |timestamps| &timestamps.base_key);
        let existing = existing_value(view, stored, base, |need| blobs.value(scanned, needs, merging, need))?;
        let value = if self.operands.is_empty() {
            existing.unwrap_or_else(Value::empty)
        } else {
            if !self.forward {
                self.operands.reverse();
            }
            let operands = std::mem::take(&mut self.operands);
            merge::full(view, self.key(), existing, &operands)?
        };
        self.rest(Current::Held(value));
        Ok(())
    }

    fn backward(
        &mut self,
        view: &View<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let comparator = view.superversion.version().comparator();
        let Phase::Backward { mut inside } = self.phase else { unreachable!("called in this phase only") };
        loop {
            self.merging.settle(&view.ctx, needs, prefix, bounds)?;
            let at_entry = self.merging.valid();
            if inside && !(at_entry && self.is_of_key(comparator, key::user_key(self.merging.key()))) {
                // The whole key has been walked.
                inside = false;
                self.phase = Phase::Backward { inside };
                let base = std::mem::replace(&mut self.newest, Base::Nothing);
                if self.found_in_key {
                    self.found_in_key = false;
                    match base {
                        Base::Value(value) if self.operands.is_empty() => self.rest(Current::Held(value)),
                        base => self.phase = Phase::Resolve(base),
                    }
                    return Ok(());
                }
            }
            if !at_entry {
                self.rest_nowhere();
                return Ok(());
            }
            let (seq, kind) = self.parse(view)?;
            if !inside {
                let user_key = key::user_key(self.merging.key());
                if bounds.lower_excludes(comparator, user_key) || !self.in_prefix(view, user_key) {
                    self.rest_nowhere();
                    return Ok(());
                }
                self.key.clear();
                self.key.extend_from_slice(user_key);
                self.operands.clear();
                self.newest = Base::Nothing;
                self.found_in_key = false;
                self.skipped = 0;
                inside = true;
                self.phase = Phase::Backward { inside };
            }
            let many = self.skipped >= self.skips_before_seek;
            self.skipped += 1;
            let hidden = self.hides(view, seq);
            let is_above = match self.timestamps {
                None => seq > self.snapshot,
                Some(_) => view.is_later(key::user_key(self.merging.key())),
            };
            if many && is_above {
                // All remaining entries of the key are newer.
                perf_context::count(PerfMetric::InternalRecentSkippedCount, 1);
                self.skip(view)?;
                self.seek_before_key(view, needs);
                continue;
            }
            if many {
                self.turn(true, needs);
                self.phase = Phase::Newest;
                self.seek_within_key(view, To::AtOrAfter, Place::Newest, needs);
                return Ok(());
            }
            if !hidden {
                self.note_timestamp();
                if self.shows_all() {
                    self.trailer = key::pack_trailer(seq, kind);
                    self.forget_older(view)?;
                    self.found_in_key = true;
                    self.newest = match kind {
                        kind if kind.is_deletion() => Base::Nothing,
                        ValueType::Merge => return Err(self.cannot_show_operands().into()),
                        kind => self.base_of(kind)?,
                    };
                } else if self.is_gone(seq, kind) {
                    perf_context::count(PerfMetric::InternalDeleteSkippedCount, 1);
                    self.skip(view)?;
                    self.forget_older(view)?;
                } else if kind == ValueType::Merge {
                    view.superversion.config().merge_operator()?;
                    self.operands.push(self.merging.pin_value());
                    self.found_in_key = true;
                } else {
                    self.forget_older(view)?;
                    self.newest = self.base_of(kind)?;
                    self.found_in_key = true;
                }
            } else {
                perf_context::count(PerfMetric::InternalRecentSkippedCount, 1);
                self.skip(view)?;
            }
            self.merging.begin_advance()?;
        }
    }
}

#[cold]
fn bad_key(view: &View<'_>, internal: &[u8], c: karst_format::Corruption) -> Error {
    Error::with_source(
        ErrorKind::Corruption,
        format!(
            "column family {:?}: internal key {}: {c}",
            Named(&view.superversion.config().name),
            Shown(internal)
        ),
        c,
    )
}
