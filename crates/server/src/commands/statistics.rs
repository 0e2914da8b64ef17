//! Statistics of commands and errors in INFO, and LATENCY.

use super::table::Id;
use super::{Call, containers, numbering};
use crate::numbers::float_text;
use crate::server::{OperationSetting, Samples, SwitchSetting};
use crate::wrong::Wrong;
use nix::sys::resource::{UsageWho, getrusage};
use std::fmt::Write as _;

/// Height of the columns of LATENCY GRAPH in lines, and their maximum number.
const GRAPH_HEIGHT: u64 = 4;
const GRAPH_COLUMNS: usize = 80;

/// Lines of a section of INFO: names and values.
pub(super) type Lines = Vec<(String, String)>;

/// INFO's section of the CPU time of the process, in seconds.
pub(super) fn of_cpu(_: &Call<'_>) -> Lines {
    let mut lines = Vec::new();
    for (who, suffix) in [(UsageWho::RUSAGE_SELF, ""), (UsageWho::RUSAGE_CHILDREN, "_children")] {
        if let Ok(usage) = getrusage(who) {
            for (name, time) in [("sys", usage.system_time()), ("user", usage.user_time())] {
                let value = format!("{}.{:06}", time.tv_sec(), time.tv_usec());
                lines.push((format!("used_cpu_{name}{suffix}"), value));
            }
        }
    }
    lines
}

/// INFO's section of the commands that were carried out or refused.
pub(super) fn of_commands(call: &Call<'_>) -> Lines {
    let mut lines = Vec::new();
    for (number, known) in numbering::all().iter().enumerate() {
        let of = call.server.command_stats().of(number);
        if !of.is_used() {
            continue;
        }
        let (calls, micros) = (of.calls.get(), of.nanos.get() / 1000);
        let mean = if calls == 0 { 0.0 } else { of.nanos.get() as f64 / 1000.0 / calls as f64 };
        let value = format!(
            "calls={calls},usec={micros},usec_per_call={mean:.2},rejected_calls={},failed_calls={}",
            of.rejected.get(),
            of.failed.get()
        );
        lines.push((format!("cmdstat_{}", known.name), value));
    }
    lines
}

/// INFO's section of error replies by their codes.
pub(super) fn of_errors(call: &Call<'_>) -> Lines {
    let errors = call.server.command_stats().errors().into_iter();
    errors.map(|(code, count)| (format!("errorstat_{code}"), format!("count={count}"))).collect()
}

/// INFO's section of the percentiles of the times of commands.
pub(super) fn of_latencies(call: &Call<'_>) -> Lines {
    let operation = call.server.settings().operation();
    if !operation.is_on(SwitchSetting::LatencyTracking) {
        return Vec::new();
    }
    let (of, mut lines) = (operation.percentiles(), Vec::new());
    for (number, known) in numbering::all().iter().enumerate() {
        let times = call.server.command_stats().of(number).times();
        if let Some(found) = times.and_then(|times| times.percentiles(&of)) {
            let each = of.iter().zip(found);
            let each = each.map(|(of, nanos)| format!("p{}={:.3}", float_text(*of), nanos as f64 / 1000.0));
            let value = each.collect::<Vec<_>>().join(",");
            lines.push((format!("latency_percentiles_usec_{}", known.name), value));
        }
    }
    lines
}

pub(super) async fn latency(call: &mut Call<'_>) -> Result<(), Wrong> {
    match (&*call.word(1), call.args.len()) {
        ("latest", 2) => {
            let events = call.server.latency().all();
            call.out.array(events.len());
            for (event, samples) in events {
                let (second, millis) = samples.list.back().copied().unwrap_or_default();
                call.out.array(4);
                call.out.bulk(event);
                for number in [second, millis, samples.longest] {
                    call.out.integer(number.cast_signed());
                }
            }
        }
        ("history", 3) => {
            let list = samples(call).map(|samples| samples.list).unwrap_or_default();
            call.out.array(list.len());
            for (second, millis) in list {
                call.out.array(2);
                call.out.integer(second.cast_signed());
                call.out.integer(millis.cast_signed());
            }
        }
        ("reset", _) => {
            let words: Vec<String> = (2..call.args.len()).map(|at| call.word(at)).collect();
            let is_chosen = |event: &str| words.is_empty() || words.iter().any(|word| word == event);
            let count = call.server.latency().reset(is_chosen);
            call.out.count(count);
        }
        ("graph", 3) => {
            let event = call.word(2);
            let samples = samples(call).ok_or_else(|| {
                let event = super::quoted(event.as_bytes(), super::QUOTED_AT_MOST);
                Wrong::err(format_args!("No samples available for event '{event}'"))
            })?;
            let graph = graph(&event, &samples, call.server.env().unix_time().as_secs());
            call.out.verbatim(&graph);
        }
        ("doctor", 2) => {
            let report = report(call);
            call.out.verbatim(&report);
        }
        ("histogram", _) => histogram(call),
        ("help", _) => containers::help(call, Id::Latency),
        (sub, _) => return Err(Wrong::arity(&format!("latency|{sub}"))),
    }
    Ok(())
}

/// The samples of the event that the second argument names.
fn samples(call: &Call<'_>) -> Option<Samples> {
    call.server.latency().all().remove(&*call.word(2))
}

/// Columns of the times of an event, the newest at the right, with the age of each below it.
fn graph(event: &str, samples: &Samples, now: u64) -> String {
    let columns: Vec<(u64, u64)> = samples.list.iter().rev().take(GRAPH_COLUMNS).rev().copied().collect();
    let longest = columns.iter().map(|(_, millis)| *millis).max().unwrap_or(0).max(1);
    let shortest = columns.iter().map(|(_, millis)| *millis).min().unwrap_or(0);
    let mut text = format!(
        "{event} - high {longest} ms, low {shortest} ms (all time high {} ms)\n{}\n",
        samples.longest,
        "-".repeat(GRAPH_COLUMNS)
    );
    for line in (1..=GRAPH_HEIGHT).rev() {
        let reaches = |millis: u64| millis * GRAPH_HEIGHT * 2 / longest;
        let marks = columns.iter().map(|(_, millis)| match reaches(*millis) {
            height if height >= line * 2 => '#',
            height if height + 1 == line * 2 => '_',
            _ => ' ',
        });
        text.extend(marks);
        text.push('\n');
    }
    let ages: Vec<String> = columns.iter().map(|(second, _)| age(now.saturating_sub(*second))).collect();
    for line in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        text.extend(ages.iter().map(|age| age.chars().nth(line).unwrap_or(' ')));
        text.push('\n');
    }
    text
}

/// A number of seconds in its largest unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// LATENCY DOCTOR: the events in sentences, with what can be done.
fn report(call: &Call<'_>) -> String {
    let threshold = call.server.settings().operation().get(OperationSetting::LatencyThreshold);
    let events = call.server.latency().all();
    if threshold == 0 {
        return "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on.\n"
            .to_owned();
    }
    if events.is_empty() {
        return format!("No event took {threshold} ms or longer since the latency monitor was reset.\n");
    }
    let mut text = format!("Events that took {threshold} ms or longer:\n");
    for (event, samples) in &events {
        let (count, sum) =
            samples.list.iter().fold((0, 0), |(count, sum), (_, millis)| (count + 1, sum + millis));
        let _never_fails = writeln!(
            text,
            "- {event}: {count} seconds with such an event, mean {} ms, longest {} ms.",
            sum / u64::max(count, 1),
            samples.longest
        );
    }
    text += "SLOWLOG GET shows the slowest commands with their arguments. Times include waits for the device \
             and for the locks of keys: LOG of the database tells stalls of writes.\n";
    text
}

/// HISTOGRAM: how many of a command's times are up to powers of two.
fn histogram(call: &mut Call<'_>) {
    let mut numbers: Vec<usize> = Vec::new();
    match &call.args[2..] {
        [] => numbers.extend(0..numbering::all().len()),
        names => {
            for number in names.iter().filter_map(|name| numbering::find(name)) {
                numbers.push(number);
                numbers.extend(numbering::subs(number));
            }
        }
    }
    let stats = call.server.command_stats();
    let found = numbers.into_iter().filter_map(|number| {
        let counts = stats.of(number).times()?.cumulative();
        let calls = counts.last()?.1;
        Some((number, calls, counts))
    });
    let found: Vec<_> = found.collect();
    let out = &mut *call.out;
    out.map(found.len());
    for (number, calls, counts) in found {
        out.bulk(&numbering::all()[number].name);
        out.map(2);
        out.bulk("calls");
        out.integer(calls.cast_signed());
        out.bulk("histogram_usec");
        out.map(counts.len());
        for (micros, count) in counts {
            out.integer(micros.cast_signed());
            out.integer(count.cast_signed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_a_column_for_each_second() {
        let samples = Samples { list: [(10, 100), (20, 50), (100, 25)].into(), longest: 300 };
        let graph = graph("command", &samples, 140);
        let lines: Vec<&str> = graph.lines().collect();
        assert_eq!(lines[0], "command - high 100 ms, low 25 ms (all time high 300 ms)");
        assert_eq!(&lines[2..6], ["#  ", "#  ", "## ", "###"]);
        assert_eq!(&lines[6..], ["224", "mm0", "  s"]);
    }
}
