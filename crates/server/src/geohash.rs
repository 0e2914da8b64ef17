//! Positions on the earth as numbers of 52 bits, distances, and the numbers near a position.
//!
//! In: longitudes and latitudes in degrees, lengths in meters. Out: the scores that Redis gives to
//! positions, in which the bits of latitude and longitude take turns, and ranges of such scores
//! that together have all positions of an area.
//!
//! The earth is a sphere. A score says the cell of a grid of 2^26 by 2^26 between the limits of the
//! map projection of the web, and stands for the middle of its cell.

use std::ops::Range;

/// Radius of the earth in meters.
const RADIUS: f64 = 6_372_797.560_856;
/// Largest longitude.
pub(crate) const LONGITUDE: f64 = 180.0;
/// Largest latitude.
pub(crate) const LATITUDE: f64 = 85.051_128_78;
/// Bits of each of the two in a score.
const BITS: u32 = 26;
/// Maximum number of cells of one grid that an area is covered with.
const CELLS: u64 = 16;
/// Part that is added to the sides of an area, against errors of rounding.
const SLACK: f64 = 1e-9;
/// Digits of the text form of a position.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

impl Position {
    /// Returns true if it has a score.
    pub(crate) fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE && self.latitude.abs() <= LATITUDE
    }

    /// Returns the score of the position, which is valid.
    pub(crate) fn score(self) -> u64 {
        let row = cell(self.latitude, LATITUDE, BITS);
        interleaved(row, cell(self.longitude, LONGITUDE, BITS))
    }

    /// Returns the position that a score stands for. Any number is taken; those of no position give
    /// one at the limits.
    pub(crate) fn of_score(score: f64) -> Self {
        // A number out of range becomes the nearest one of 64 bits.
        let bits = score as u64;
        Self {
            longitude: middle(deinterleaved(bits >> 1), LONGITUDE),
            latitude: middle(deinterleaved(bits), LATITUDE),
        }
    }

    /// Returns the text form: 11 digits, the last of which is always 0.
    pub(crate) fn text(self) -> String {
        // Its latitudes reach the poles, unlike those of scores.
        let bits = interleaved(cell(self.latitude, 90.0, BITS), cell(self.longitude, LONGITUDE, BITS));
        let digit = |at: u32| match (2 * BITS).checked_sub(5 * (at + 1)) {
            Some(below) => DIGITS[(bits >> below & 31) as usize],
            None => DIGITS[0],
        };
        (0..11).map(|at| char::from(digit(at))).collect()
    }

    /// Returns the distance on the sphere in meters.
    pub(crate) fn distance(self, other: Self) -> f64 {
        let half_sine = |from: f64, to: f64| ((to.to_radians() - from.to_radians()) / 2.0).sin();
        let across = half_sine(self.longitude, other.longitude);
        if across == 0.0 {
            return along_meridian(self.latitude, other.latitude);
        }
        let up = half_sine(self.latitude, other.latitude);
        let both = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        2.0 * RADIUS * (up * up + both * across * across).sqrt().min(1.0).asin()
    }
}

fn along_meridian(one: f64, other: f64) -> f64 {
    RADIUS * (other.to_radians() - one.to_radians()).abs()
}

/// Number of the cell of a coordinate between `-limit` and `limit`, of 2^bits. `limit` itself is in
/// the one behind the last.
fn cell(coordinate: f64, limit: f64, bits: u32) -> u32 {
    let part = (coordinate + limit) / (2.0 * limit);
    (part * f64::from(1u32 << bits)) as u32
}

/// Coordinate of the middle of a cell.
fn middle(cell: u32, limit: f64) -> f64 {
    let side = |cell: f64| -limit + cell / f64::from(1u32 << BITS) * (2.0 * limit);
    ((side(f64::from(cell)) + side(f64::from(cell) + 1.0)) / 2.0).clamp(-limit, limit)
}

/// Bits of a latitude and of a longitude in turns; that of the latitude is the lowest.
fn interleaved(latitude: u32, longitude: u32) -> u64 {
    spread(latitude) | spread(longitude) << 1
}

/// Moves each bit to twice its place.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every second bit, the lowest among them.
fn deinterleaved(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// Form of an area around a position; lengths are in meters and not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// An area around a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) center: Position,
    pub(crate) shape: Shape,
}

impl Area {
    /// Returns the distance of a position from the center, if the position is in the area.
    pub(crate) fn find(&self, position: Position) -> Option<f64> {
        let is_inside = match self.shape {
            Shape::Circle { .. } => true,
            Shape::Box { width, height } => {
                let beside = Position { latitude: position.latitude, ..self.center };
                along_meridian(position.latitude, self.center.latitude) <= height / 2.0
                    && position.distance(beside) <= width / 2.0
            }
        };
        let distance = is_inside.then(|| self.center.distance(position))?;
        match self.shape {
            Shape::Circle { radius } if distance > radius => None,
            _ => Some(distance),
        }
    }

    /// Returns ranges of scores, in their order, that have all positions of the area, and others.
    pub(crate) fn scores(&self) -> Vec<Range<u64>> {
        let (latitudes, longitudes) = self.sides();
        let spans = spans(longitudes);
        for bits in (1..=BITS).rev() {
            let rows = cell(latitudes.0, LATITUDE, bits)..=cell(latitudes.1, LATITUDE, bits);
            let columns: Vec<_> = spans
                .iter()
                .map(|(west, east)| cell(*west, LONGITUDE, bits)..=cell(*east, LONGITUDE, bits))
                .collect();
            let across: u64 = columns.iter().map(|it| u64::from(it.end() - it.start()) + 1).sum();
            if across * (u64::from(rows.end() - rows.start()) + 1) > CELLS {
                continue;
            }
            let cells = columns.into_iter().flatten();
            return merged(cells.flat_map(|column| rows.clone().map(move |row| (row, column))), bits);
        }
        // All positions: the cells behind the last have the bits above.
        let all = 0..1 << (2 * BITS + 2);
        vec![all]
    }

    /// The least and the greatest latitude and longitude of the area. Longitudes can be beyond 180
    /// degrees.
    fn sides(&self) -> ((f64, f64), (f64, f64)) {
        let Position { longitude, latitude } = self.center;
        let up = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { height, .. } => height / 2.0,
        };
        let up = up / RADIUS * (1.0 + SLACK) + SLACK;
        let limit = LATITUDE.to_radians();
        let (south, north) = (latitude.to_radians() - up, latitude.to_radians() + up);
        let sine = match self.shape {
            // A circle around a pole has all longitudes.
            Shape::Circle { .. } if up + latitude.to_radians().abs() >= std::f64::consts::FRAC_PI_2 => 1.0,
            Shape::Circle { .. } => up.sin() / latitude.to_radians().cos(),
            Shape::Box { width, .. } => {
                let farthest = south.abs().max(north.abs()).min(limit);
                let quarter = width / (4.0 * RADIUS);
                let is_round = quarter >= std::f64::consts::FRAC_PI_2;
                if is_round { 1.0 } else { quarter.sin() / farthest.cos() }
            }
        };
        let aside = match (sine >= 1.0, self.shape) {
            (true, _) => LONGITUDE,
            (false, Shape::Circle { .. }) => sine.asin().to_degrees(),
            (false, Shape::Box { .. }) => 2.0 * sine.asin().to_degrees(),
        };
        let aside = (aside * (1.0 + SLACK) + SLACK).min(LONGITUDE);
        let latitudes = (south.to_degrees().max(-LATITUDE), north.to_degrees().min(LATITUDE));
        (latitudes, (longitude - aside, longitude + aside))
    }
}

/// The spans of longitudes from -180 to 180 that a span which can be beyond them has.
fn spans((west, east): (f64, f64)) -> Vec<(f64, f64)> {
    match (west <= -LONGITUDE, east >= LONGITUDE) {
        (false, false) => vec![(west, east)],
        (true, true) => vec![(-LONGITUDE, LONGITUDE)],
        (true, false) => vec![(-LONGITUDE, east), ((west + 360.0).max(east), LONGITUDE)],
        (false, true) => vec![(west, LONGITUDE), (-LONGITUDE, (east - 360.0).min(west))],
    }
}

/// Returns the ranges of scores of cells, whose numbers have `bits` bits; neighbours are one range.
fn merged(cells: impl Iterator<Item = (u32, u32)>, bits: u32) -> Vec<Range<u64>> {
    let mut all: Vec<u64> = cells.map(|(row, column)| interleaved(row, column)).collect();
    all.sort_unstable();
    let below = 2 * (BITS - bits);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for cell in all {
        let (first, behind) = (cell << below, (cell + 1) << below);
        match ranges.last_mut() {
            Some(last) if first <= last.end => last.end = behind,
            _ => ranges.push(first..behind),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(longitude: f64, latitude: f64) -> Position {
        Position { longitude, latitude }
    }

    #[test]
    fn scores_and_texts_of_known_places() {
        let (palermo, catania) = (at(13.361389, 38.115556), at(15.087269, 37.502669));
        assert_eq!((palermo.score(), catania.score()), (3_479_099_956_230_698, 3_479_447_370_796_909));
        let stored = |place: Position| Position::of_score(place.score() as f64);
        assert_eq!((&*stored(palermo).text(), &*stored(catania).text()), ("sqc8b49rny0", "sqdtr74hyu0"));
        assert!((stored(palermo).distance(stored(catania)) - 166_274.151_6).abs() < 1e-3);
        for corner in [at(180.0, LATITUDE), at(-180.0, -LATITUDE), at(0.0, 0.0)] {
            let back = stored(corner);
            assert!((back.longitude - corner.longitude).abs() < 1e-5, "{back:?}");
            assert!((back.latitude - corner.latitude).abs() < 1e-5, "{back:?}");
        }
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e18] {
            assert!(Position::of_score(score).is_valid());
        }
    }

    #[test]
    fn bits_take_turns_and_come_back() {
        for number in [0, 1, 0x1234_5678, u32::MAX] {
            assert_eq!(deinterleaved(interleaved(number, !number)), number);
            assert_eq!(deinterleaved(interleaved(number, !number) >> 1), !number);
        }
    }

    #[test]
    fn the_ranges_of_an_area_have_all_its_positions() {
        // A grid of positions that is finer than the areas, around their centers and beyond the
        // line of the date.
        for center in [at(0.0, 0.0), at(179.99, 60.0), at(-179.9, -84.9), at(13.3, 85.0), at(180.0, 1.0)] {
            for size in [0.0, 10.0, 5_000.0, 300_000.0, 4e6, 1.5e7, 5e7, f64::INFINITY] {
                let shapes = [
                    Shape::Circle { radius: size },
                    Shape::Box { width: size, height: size / 3.0 },
                    Shape::Box { width: size / 5.0, height: size },
                ];
                for area in shapes.map(|shape| Area { center, shape }) {
                    check_area(&area, size);
                }
            }
        }
    }

    fn check_area(area: &Area, size: f64) {
        let ranges = area.scores();
        assert!(ranges.len() <= CELLS as usize && ranges.is_sorted_by(|a, b| a.end < b.start));
        let step = (size / 111_000.0 / 8.0).clamp(1e-6, 10.0);
        for up in -20..=20 {
            for aside in -40..=40 {
                let latitude = (area.center.latitude + f64::from(up) * step).clamp(-LATITUDE, LATITUDE);
                let longitude = area.center.longitude + f64::from(aside) * step;
                let longitude = (longitude + 540.0).rem_euclid(360.0) - 180.0;
                let score = at(longitude, latitude).score();
                if area.find(Position::of_score(score as f64)).is_some() {
                    let is_found = ranges.iter().any(|range| range.contains(&score));
                    assert!(is_found, "{area:?} has {longitude} {latitude}");
                }
            }
        }
    }
}
