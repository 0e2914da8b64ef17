//! Statistics of commands: INFO, LATENCY and COMMAND DOCS.

use crate::client::{Served, options};
use karst_server::ServerOptions;

#[test]
fn commands_and_errors_are_counted_in_info() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[("CONFIG RESETSTAT", "+OK"), ("SET k v", "+OK"), ("GET k", "\"v\"")]);
    for line in ["INCR k", "SET k", "NOTHING", "CLIENT ID", "EXEC"] {
        client.line(line);
    }
    client.check(&[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("LPUSH k x", "+QUEUED")]);
    client.line("EXEC");
    let info = client.line("INFO commandstats").text();
    let stats = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
        let fields = line.unwrap_or_else(|| panic!("{name} in {info}")).split(',');
        fields.filter(|field| !field.starts_with("usec")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(stats("set"), "calls=1 rejected_calls=1 failed_calls=0");
    assert_eq!(stats("get"), "calls=2 rejected_calls=0 failed_calls=0");
    assert_eq!(stats("incr"), "calls=1 rejected_calls=0 failed_calls=1");
    assert_eq!(stats("lpush"), "calls=1 rejected_calls=0 failed_calls=1");
    assert_eq!(stats("client|id"), "calls=1 rejected_calls=0 failed_calls=0");
    assert_eq!(stats("exec"), "calls=2 rejected_calls=0 failed_calls=1");
    let errors = client.line("INFO errorstats").text();
    for line in ["errorstat_ERR:count=4", "errorstat_WRONGTYPE:count=1"] {
        assert!(errors.contains(line), "{line} in {errors}");
    }
    let latencies = client.line("INFO latencystats").text();
    assert!(latencies.contains("latency_percentiles_usec_get:p50="), "{latencies}");
    client.check(&[("CONFIG SET latency-tracking no", "+OK")]);
    assert_eq!(client.line("INFO latencystats").text(), "# Latencystats\r\n");
}

#[test]
fn sections_of_info_are_chosen_by_their_names() {
    let served = Served::start();
    let mut client = served.client();
    let (default, all) = (client.line("INFO").text(), client.line("INFO everything").text());
    for section in ["# Server", "# CPU", "# Errorstats", "# Keyspace", "used_cpu_user:", "used_memory_peak:"]
    {
        assert!(default.contains(section) && all.contains(section), "{section}");
    }
    assert!(!default.contains("# Commandstats") && all.contains("cmdstat_info:"));
    let two = client.line("INFO cpu server").text();
    assert!(two.contains("# CPU") && two.contains("# Server") && !two.contains("# Stats"));
}

#[test]
fn slow_commands_are_kept_for_latency() {
    let served = Served::with(&ServerOptions { allow_debug: true, ..options() });
    let mut client = served.client();
    client.check(&[
        ("LATENCY LATEST", "[]"),
        ("DEBUG SLEEP 0.001", "+OK"),
        ("LATENCY LATEST", "[]"),
        ("CONFIG SET latency-monitor-threshold 1", "+OK"),
        ("DEBUG SLEEP 0.01", "+OK"),
        ("CONFIG SET latency-monitor-threshold 0", "+OK"),
    ]);
    let latest = client.line("LATENCY LATEST").list().remove(0).list();
    assert_eq!(latest[0].to_string(), "\"command\"");
    assert!(latest[2].integer() >= 10 && latest[3].integer() >= 10);
    assert!(!client.line("LATENCY HISTORY command").list().is_empty());
    assert!(client.line("LATENCY GRAPH command").text().starts_with("command - high "));
    assert!(client.line("LATENCY DOCTOR").text().contains("The latency monitor is off."));
    client.check(&[
        ("LATENCY HISTORY other", "[]"),
        ("LATENCY GRAPH other", "-ERR No samples available for event 'other'"),
        ("LATENCY RESET other", ":0"),
        ("LATENCY RESET", ":1"),
        ("LATENCY LATEST", "[]"),
        ("CONFIG RESETSTAT", "+OK"),
        ("PING", "+PONG"),
        ("LATENCY HISTOGRAM nothing", "[]"),
    ]);
    let histogram = client.line("LATENCY HISTOGRAM ping").list();
    assert_eq!(histogram[0].to_string(), "\"ping\"");
    assert!(histogram[1].to_string().starts_with("[\"calls\" :1 \"histogram_usec\" [:"));
}

#[test]
fn commands_are_documented() {
    let served = Served::start();
    let mut client = served.client();
    let get = client.line("COMMAND DOCS get").to_string();
    assert_eq!(
        get,
        "[\"get\" [\"summary\" \"Returns a string.\" \"since\" \"1.0.0\" \"group\" \"string\" \"complexity\" \
         \"O(1)\" \"arguments\" [[\"name\" \"key\" \"type\" \"key\"]]]]"
    );
    let config = client.line("COMMAND DOCS config").to_string();
    assert!(config.contains("\"config|get\" [\"summary\" \"Return settings that match.\""), "{config}");
    client.check(&[("COMMAND DOCS nothing", "[]")]);
    let count = client.line("COMMAND COUNT").integer();
    assert_eq!(client.line("COMMAND DOCS").list().len() as i64, 2 * count);
}
