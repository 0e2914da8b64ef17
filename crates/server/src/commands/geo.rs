//! Positions on the earth: members of sorted sets whose scores are those of [`Position::score`].

use super::Call;
use super::pace::Pace;
use super::zset_ranges::replace;
use super::zsets::{AddOptions, OF_SORTED};
use crate::geohash::{Area, Position, Shape};
use crate::numbers::{float_argument, integer_argument};
use crate::resp::Encoder;
use crate::store::{Access, Key, Kind, Scored};
use crate::wrong::Wrong;

/// Member of a sorted set in an area.
struct Place {
    member: Vec<u8>,
    score: f64,
    position: Position,
    /// From the center of the area in meters.
    distance: f64,
}

/// Parses the two arguments of a position.
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, Wrong> {
    let position = Position { longitude: float_argument(longitude)?, latitude: float_argument(latitude)? };
    let Position { longitude, latitude } = position;
    let out_of_range = || format!("invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
    position.is_valid().then_some(position).ok_or_else(|| Wrong::err(out_of_range()))
}

/// Parses a unit of lengths. Returns it in meters.
fn unit(text: &[u8]) -> Result<f64, Wrong> {
    match text.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Wrong::err("unsupported unit provided. please use M, KM, FT, MI")),
    }
}

pub(super) async fn add(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (options, at) = AddOptions::parse(call.args);
    let (places, rest) = call.args[at..].as_chunks();
    if places.is_empty() || !rest.is_empty() || options.are_of_scores() || (options.nx && options.xx) {
        return Err(Wrong::syntax());
    }
    let rule = options.rule(places.len())?;
    let (mut pairs, mut pace) = (Vec::new(), Pace::default());
    for [longitude, latitude, member] in places {
        pairs.push((member.clone(), position(longitude, latitude)?.score() as f64));
        pace.step().await;
    }
    let key = call.key(1);
    let put = call.access.put_scores(&key, &pairs, rule).await?;
    if put.added + put.changed > 0 {
        call.event(OF_SORTED, "zadd", &key);
    }
    let number = if options.ch { put.added + put.changed } else { put.added };
    call.out.integer(number.cast_signed());
    Ok(())
}

/// Positions of the members that a range of arguments names, from the third on.
async fn positions(call: &Call<'_>, names: &[Vec<u8>]) -> Result<Vec<Option<Position>>, Wrong> {
    let scores = call.access.scores(&call.key(1), names).await?;
    Ok(scores.into_iter().map(|score| score.map(Position::of_score)).collect())
}

fn reply_position(out: &mut Encoder, position: Position) {
    out.array(2);
    out.long_double(position.longitude);
    out.long_double(position.latitude);
}

pub(super) async fn get(call: &mut Call<'_>) -> Result<(), Wrong> {
    let found = positions(call, &call.args[2..]).await?;
    call.out.array(found.len());
    for position in found {
        match position {
            Some(position) => reply_position(call.out, position),
            None => call.out.null_array(),
        }
    }
    Ok(())
}

pub(super) async fn hash(call: &mut Call<'_>) -> Result<(), Wrong> {
    let found = positions(call, &call.args[2..]).await?;
    call.out.array(found.len());
    found.into_iter().for_each(|position| call.out.optional_bulk(position.map(Position::text)));
    Ok(())
}

pub(super) async fn distance(call: &mut Call<'_>) -> Result<(), Wrong> {
    let unit = match call.args {
        [_, _, _, _] => 1.0,
        [_, _, _, _, name] => unit(name)?,
        _ => return Err(Wrong::syntax()),
    };
    match positions(call, &call.args[2..4]).await?[..] {
        [Some(one), Some(other)] => call.out.bulk_text(format_args!("{:.4}", one.distance(other) / unit)),
        _ => call.out.null(),
    }
    Ok(())
}

/// Order of the places that a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorted {
    Nearest,
    Farthest,
}

/// Form of a search command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// GEORADIUS: a position and a radius are the first arguments.
    Coordinates,
    /// GEORADIUSBYMEMBER: a member and a radius are.
    Member,
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

impl Form {
    /// True for the commands whose area is given by options.
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }
}

/// Arguments of a search.
struct Search {
    center: Option<Center>,
    shape: Option<Shape>,
    /// Unit of distances, in meters.
    unit: f64,
    sorted: Option<Sorted>,
    /// Maximum number of places; 0: all.
    count: u64,
    /// The first places that are found are enough.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    /// Number of the argument that names the key to store in.
    store: Option<usize>,
    stores_distance: bool,
}

/// Center of the area of a search.
#[derive(Clone, Copy)]
enum Center {
    At(Position),
    /// That of the member which the argument of this number names.
    Member(usize),
}

/// Parses a length that is not negative; `what` names it in errors.
fn length(text: &[u8], what: &str, negative: &str) -> Result<f64, Wrong> {
    let length = float_argument(text).map_err(|_| Wrong::err(format_args!("need numeric {what}")))?;
    match length < 0.0 {
        true => Err(Wrong::err(format_args!("{negative} cannot be negative"))),
        false => Ok(length),
    }
}

impl Search {
    fn parse(call: &Call<'_>, form: Form, may_store: bool) -> Result<Self, Wrong> {
        let mut search = Self {
            center: None,
            shape: None,
            unit: 1.0,
            sorted: None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_position: false,
            store: (form == Form::SearchStore).then_some(1),
            stores_distance: false,
        };
        let args = call.args;
        let mut at = match form {
            Form::Coordinates => {
                search.center = Some(Center::At(position(&args[2], &args[3])?));
                search.circle(&args[4], &args[5])?;
                6
            }
            Form::Member => {
                search.center = Some(Center::Member(2));
                search.circle(&args[3], &args[4])?;
                5
            }
            Form::Search => 2,
            Form::SearchStore => 3,
        };
        while at < args.len() {
            at += search.option(call, at, form, may_store)?;
        }
        search.check(call, form)?;
        Ok(search)
    }

    fn circle(&mut self, radius: &[u8], name: &[u8]) -> Result<(), Wrong> {
        let radius = length(radius, "radius", "radius")?;
        self.unit = unit(name)?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit });
        Ok(())
    }

    /// Parses the option at an argument. Returns the number of its arguments.
    fn option(&mut self, call: &Call<'_>, at: usize, form: Form, may_store: bool) -> Result<usize, Wrong> {
        let is_search = form.is_search();
        let rest = call.args.get(at + 1..).unwrap_or_default();
        match (&*call.word(at), rest) {
            ("withdist", _) => self.with_distance = true,
            ("withhash", _) => self.with_hash = true,
            ("withcoord", _) => self.with_position = true,
            ("any", _) => self.any = true,
            ("asc", _) => self.sorted = Some(Sorted::Nearest),
            ("desc", _) => self.sorted = Some(Sorted::Farthest),
            ("count", [count, ..]) => {
                let count = u64::try_from(integer_argument(count)?).ok().filter(|count| *count > 0);
                self.count = count.ok_or(Wrong::err("COUNT must be > 0"))?;
                return Ok(2);
            }
            ("store", [_, ..]) if may_store => {
                (self.store, self.stores_distance) = (Some(at + 1), false);
                return Ok(2);
            }
            ("storedist", [_, ..]) if may_store => {
                (self.store, self.stores_distance) = (Some(at + 1), true);
                return Ok(2);
            }
            ("storedist", _) if form == Form::SearchStore => self.stores_distance = true,
            ("frommember", [_, ..]) if is_search && !matches!(self.center, Some(Center::At(_))) => {
                self.center = Some(Center::Member(at + 1));
                return Ok(2);
            }
            ("fromlonlat", [longitude, latitude, ..])
                if is_search && !matches!(self.center, Some(Center::Member(_))) =>
            {
                self.center = Some(Center::At(position(longitude, latitude)?));
                return Ok(3);
            }
            ("byradius", [radius, name, ..])
                if is_search && !matches!(self.shape, Some(Shape::Box { .. })) =>
            {
                self.circle(radius, name)?;
                return Ok(3);
            }
            ("bybox", [width, height, name, ..])
                if is_search && !matches!(self.shape, Some(Shape::Circle { .. })) =>
            {
                self.set_box(width, height, name)?;
                return Ok(4);
            }
            _ => return Err(Wrong::syntax()),
        }
        Ok(1)
    }

    fn set_box(&mut self, width: &[u8], height: &[u8], name: &[u8]) -> Result<(), Wrong> {
        let width = length(width, "width", "height or width")?;
        let height = length(height, "height", "height or width")?;
        self.unit = unit(name)?;
        self.shape = Some(Shape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    /// Checks the options together.
    fn check(&self, call: &Call<'_>, form: Form) -> Result<(), Wrong> {
        if self.store.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            let what = if form.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let why = format!("{what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Wrong::err(why));
        }
        let name = || String::from_utf8_lossy(&call.args[0]);
        if self.center.is_none() {
            let why = format!("exactly one of FROMMEMBER or FROMLONLAT can be specified for {}", name());
            return Err(Wrong::err(why));
        }
        if self.shape.is_none() {
            let why = format!("exactly one of BYRADIUS and BYBOX can be specified for {}", name());
            return Err(Wrong::err(why));
        }
        match self.any && self.count == 0 {
            true => Err(Wrong::err("the ANY argument requires COUNT argument")),
            false => Ok(()),
        }
    }

    /// Returns the area; `None` if a member is not there.
    async fn area(&self, call: &Call<'_>, key: &Key) -> Result<Option<Area>, Wrong> {
        let center = match self.center {
            Some(Center::At(position)) => Some(position),
            Some(Center::Member(at)) => {
                let scores = call.access.scores(key, &call.args[at..=at]).await?;
                scores.into_iter().next().flatten().map(Position::of_score)
            }
            None => None,
        };
        Ok(center.zip(self.shape).map(|(center, shape)| Area { center, shape }))
    }

    /// Finds the places of an area, in the order and number that are asked for.
    async fn find(&self, access: &Access, key: &Key, area: &Area) -> Result<Vec<Place>, Wrong> {
        let most = if self.any { self.count } else { u64::MAX };
        let mut found: Vec<Place> = Vec::new();
        for range in area.scores() {
            let visit = |member: &[u8], score: f64| {
                let position = Position::of_score(score);
                if let Some(distance) = area.find(position) {
                    found.push(Place { member: member.to_vec(), score, position, distance });
                }
                (found.len() as u64) < most
            };
            if !access.visit_scores(key, range.start as f64..range.end as f64, visit).await? {
                break;
            }
        }
        let order = |a: &Place, b: &Place| a.distance.total_cmp(&b.distance);
        let mut pace = Pace::default();
        match self.sorted {
            None if self.count == 0 || self.any => {}
            None | Some(Sorted::Nearest) => found = pace.sort(found, order).await,
            Some(Sorted::Farthest) => found = pace.sort(found, |a, b| order(b, a)).await,
        }
        if self.count > 0 {
            found.truncate(usize::try_from(self.count).unwrap_or(usize::MAX));
        }
        Ok(found)
    }

    async fn reply(&self, out: &mut Encoder, found: &[Place]) {
        let options = [self.with_distance, self.with_hash, self.with_position];
        let parts = options.into_iter().filter(|is_given| *is_given).count();
        let mut pace = Pace::default();
        out.array(found.len());
        for place in found {
            if parts > 0 {
                out.array(parts + 1);
            }
            out.bulk(&place.member);
            if self.with_distance {
                out.bulk_text(format_args!("{:.4}", place.distance / self.unit));
            }
            if self.with_hash {
                out.integer(place.score as i64);
            }
            if self.with_position {
                reply_position(out, place.position);
            }
            pace.step().await;
        }
    }
}

async fn search(call: &mut Call<'_>, form: Form, may_store: bool) -> Result<(), Wrong> {
    let key = call.key(if form == Form::SearchStore { 2 } else { 1 });
    call.access.pin();
    let is_there = call.access.length(&key, Kind::SortedSet).await? > 0;
    let search = Search::parse(call, form, may_store)?;
    let found = match search.area(call, &key).await? {
        Some(area) => search.find(call.access, &key, &area).await?,
        None if is_there => return Err(Wrong::err("could not decode requested zset member")),
        None => Vec::new(),
    };
    let Some(at) = search.store else {
        search.reply(call.out, &found).await;
        return Ok(());
    };
    let scored = |place: Place| {
        let score = if search.stores_distance { place.distance / search.unit } else { place.score };
        (place.member, score)
    };
    let found: Vec<Scored> = found.into_iter().map(scored).collect();
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    replace(call, at, &found, event).await
}

pub(super) async fn radius(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::Coordinates, true).await
}

pub(super) async fn radius_read_only(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::Coordinates, false).await
}

pub(super) async fn radius_by_member(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::Member, true).await
}

pub(super) async fn radius_by_member_read_only(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::Member, false).await
}

pub(super) async fn search_area(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::Search, false).await
}

pub(super) async fn search_and_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    search(call, Form::SearchStore, false).await
}
