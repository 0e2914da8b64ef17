//! Metrics of a server as text in the format that Prometheus reads.
//!
//! Counters begin at the start of the server or at CONFIG RESETSTAT; those of the database at its
//! opening, and only if it keeps statistics.

use super::{numbering, operation};
use crate::server::Server;
use karstdb::Ticker;
use std::fmt::{Display, Write as _};

/// Percentiles of the times of commands.
const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 100.0];

/// A text of metrics that grows.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a metric: its name, its kind and a sentence.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _never_fails = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A value with one label, whose text is escaped.
    fn labelled(&mut self, name: &str, (label, of): (&str, &str), value: impl Display) {
        let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _never_fails = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
    }

    /// A metric of one value.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.begin(name, kind, help);
        let _never_fails = writeln!(self.0, "{name} {value}");
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Server {
    /// The metrics of now, as text in the format that Prometheus reads. Does not block.
    pub fn metrics(&self) -> String {
        let mut text = Text::default();
        let (memtables, cache) = operation::used_memory(self);
        let memory = self.memory();
        let gauges = [
            ("karst_uptime_seconds", "Seconds since the start.", self.uptime().as_secs()),
            ("karst_clients", "Connected clients.", self.clients().count() as u64),
            ("karst_clients_blocked", "Clients whose commands wait.", self.clients().blocked() as u64),
            ("karst_memory_clients_bytes", "Memory of clients.", self.clients().memory().bytes()),
            ("karst_memory_memtables_bytes", "Memory of memtables.", memtables),
            ("karst_memory_cache_bytes", "Memory of the block cache.", cache),
            ("karst_memory_resident_bytes", "Resident memory of the process.", memory.resident()),
        ];
        for (name, help, value) in gauges {
            text.single(name, "gauge", help, value);
        }
        let (stats, counts) = (self.stats(), self.store().counts());
        let counters = [
            ("karst_connections_total", "Connections accepted.", stats.connections.get()),
            ("karst_connections_rejected_total", "Connections refused.", stats.rejected.get()),
            ("karst_clients_evicted_total", "Clients disconnected for their memory.", stats.evicted.get()),
            ("karst_tls_errors_total", "Connections that TLS has ended.", stats.tls_errors.get()),
            ("karst_received_bytes_total", "Bytes received from clients.", stats.received.get()),
            ("karst_sent_bytes_total", "Bytes sent to clients.", stats.sent.get()),
            ("karst_keys_expired_total", "Keys deleted because they had expired.", counts.expired()),
            ("karst_keyspace_hits_total", "Keys that commands found.", counts.hits()),
            ("karst_keyspace_misses_total", "Keys that commands did not find.", counts.misses()),
        ];
        for (name, help, value) in counters {
            text.single(name, "counter", help, value);
        }
        text.begin("karst_keys", "gauge", "Keys of a database.");
        for db in (0..self.store().databases()).filter(|db| self.store().size(*db) > 0) {
            text.labelled("karst_keys", ("db", &db.to_string()), self.store().size(db));
        }
        text.begin("karst_errors_total", "counter", "Error replies by their codes.");
        for (code, count) in self.command_stats().errors() {
            text.labelled("karst_errors_total", ("code", &code), count);
        }
        self.metrics_of_commands(&mut text);
        let statistics = self.store().db().statistics();
        if statistics.enabled() {
            text.begin("karst_db_total", "counter", "Counters of the database by RocksDB's names.");
            for ticker in Ticker::all() {
                text.labelled("karst_db_total", ("ticker", ticker.name()), statistics.ticker(ticker));
            }
        }
        text.0
    }

    fn metrics_of_commands(&self, text: &mut Text) {
        let all = || {
            let numbered = numbering::all().iter().enumerate();
            let numbered = numbered.map(|(number, known)| (&*known.name, self.command_stats().of(number)));
            numbered.filter(|(_, of)| of.is_used())
        };
        text.begin("karst_commands_total", "counter", "Commands carried out.");
        all().for_each(|(name, of)| text.labelled("karst_commands_total", ("command", name), of.calls.get()));
        text.begin("karst_commands_failed_total", "counter", "Commands that have ended with an error.");
        all().for_each(|(name, of)| {
            text.labelled("karst_commands_failed_total", ("command", name), of.failed.get());
        });
        text.begin("karst_commands_rejected_total", "counter", "Commands refused before they ran.");
        all().for_each(|(name, of)| {
            text.labelled("karst_commands_rejected_total", ("command", name), of.rejected.get());
        });
        text.begin("karst_command_seconds", "summary", "Times of commands.");
        for (name, of) in all() {
            let found = of.times().and_then(|times| times.percentiles(&PERCENTILES)).unwrap_or_default();
            for (percentile, nanos) in PERCENTILES.iter().zip(found) {
                let (quantile, value) = (percentile / 100.0, seconds(nanos));
                let _never_fails = writeln!(
                    text.0,
                    "karst_command_seconds{{command=\"{name}\",quantile=\"{quantile}\"}} {value}"
                );
            }
            let sum = seconds(of.nanos.get());
            text.labelled("karst_command_seconds_sum", ("command", name), sum);
            text.labelled("karst_command_seconds_count", ("command", name), of.calls.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.begin("a", "counter", "b");
        text.labelled("a", ("code", "x\"\\\n"), 1);
        assert_eq!(text.0, "# HELP a b\n# TYPE a counter\na{code=\"x\\\"\\\\\\n\"} 1\n");
    }
}
