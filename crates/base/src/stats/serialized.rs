//! Statistics for `serde`: a map from RocksDB's names to counts and to summaries of distributions.

use super::{Histogram, HistogramKind, Statistics, Ticker};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

/// Serializes count, sum, minimum, maximum, average, standard deviation and percentiles.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Histogram", 9)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum", &self.sum())?;
        fields.serialize_field("min", &self.min())?;
        fields.serialize_field("max", &self.max())?;
        fields.serialize_field("average", &self.average())?;
        fields.serialize_field("standard_deviation", &self.standard_deviation())?;
        for (name, percent) in [("median", 50.0), ("percentile95", 95.0), ("percentile99", 99.0)] {
            fields.serialize_field(name, &self.percentile(percent))?;
        }
        fields.end()
    }
}

/// Serializes a map from the names of all tickers and histograms to their current values.
impl Serialize for Statistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Ticker::COUNT + HistogramKind::COUNT))?;
        for ticker in Ticker::all() {
            map.serialize_entry(ticker.name(), &self.ticker(ticker))?;
        }
        for kind in HistogramKind::all() {
            map.serialize_entry(kind.name(), &self.histogram(kind))?;
        }
        map.end()
    }
}
