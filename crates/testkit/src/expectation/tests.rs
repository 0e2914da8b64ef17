//! Tests of the recorder and the checker against correct models, and against models with one error.

use super::*;
use crate::model::{Model, ModelFamily};
use crate::subject::Cursor;

fn entries(count: u32) -> Vec<Entry> {
    (0..count).map(|i| (format!("key{:05}", i * 3).into_bytes(), vec![i as u8; (i % 7) as usize])).collect()
}

fn model(entries: Vec<Entry>) -> Model {
    let family = ModelFamily {
        name: "default".into(),
        order: Order::Bytewise,
        prefix: Some(Prefix::Fixed(6)),
        entries,
    };
    Model::new(vec![family]).expect("sorted")
}

fn recorded() -> Expectation {
    let inquiry = Inquiry {
        column_family: "default".into(),
        order: Order::Bytewise,
        prefix: Some(Prefix::Fixed(6)),
        probes: vec![b"key00001".to_vec()],
        walks: 40,
    };
    Expectation::record(&model(entries(500)), &[inquiry], 7).expect("the model is consistent")
}

#[test]
fn a_recording_survives_its_bytes_and_checks() {
    let expectation = recorded();
    let again = Expectation::decode(&expectation.encode()).expect("decodes");
    assert_eq!(again, expectation);
    let compared = again.check(&model(entries(500))).expect("the same model answers the same");
    assert_eq!(compared.entries, 500);
    assert!(compared.keys > 700 && compared.moves > 300, "{compared:?}");
}

#[test]
fn every_cut_of_its_bytes_is_an_error() {
    let bytes = recorded().encode();
    for len in (0..bytes.len()).step_by(97) {
        assert!(Expectation::decode(&bytes[..len]).is_err(), "cut at {len}");
    }
}

#[test]
fn one_wrong_entry_is_found() {
    let expectation = recorded();
    let mut lost = entries(500);
    lost.remove(250);
    assert!(expectation.check(&model(lost)).unwrap_err().contains("key00750"));
    let mut changed = entries(500);
    changed[13].1.push(1);
    assert!(expectation.check(&model(changed)).unwrap_err().contains("entry 13"));
    let mut added = entries(500);
    added.push((b"key99999".to_vec(), vec![]));
    assert!(expectation.check(&model(added)).is_err());
}

/// A store whose scans are right and whose cursor turns one move late: only the walks can find it.
struct TurnsLate(Model);
struct LateCursor<'a>(Box<dyn Cursor + 'a>, bool);

impl Subject for TurnsLate {
    fn name(&self) -> String {
        "turns late".into()
    }
    fn column_families(&self) -> Result<Vec<String>, String> {
        self.0.column_families()
    }
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.0.get(family, key)
    }
    fn multi_get(&self, family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        self.0.multi_get(family, keys)
    }
    fn cursor<'a>(&'a self, family: &str, settings: &ReadSettings) -> Result<Box<dyn Cursor + 'a>, String> {
        Ok(Box::new(LateCursor(self.0.cursor(family, settings)?, true)))
    }
}

impl Cursor for LateCursor<'_> {
    fn apply(&mut self, step: &Move) -> Result<(), String> {
        match step {
            Move::Prev if self.1 => self.1 = false,
            Move::Last | Move::SeekForPrev(_) => {
                self.1 = false;
                self.0.apply(step)?;
            }
            _ => {
                self.1 = !matches!(step, Move::Prev);
                self.0.apply(step)?;
            }
        }
        Ok(())
    }
    fn current(&self) -> Option<(&[u8], &[u8])> {
        self.0.current()
    }
}

#[test]
fn a_cursor_that_turns_late_is_found() {
    let message = recorded().check(&TurnsLate(model(entries(500)))).unwrap_err();
    assert!(message.contains("walk") && message.contains("prev"), "{message}");
}
