//! Memory, start and speed by number of keys.

use std::time::Instant;

use plinth_engine::{At, Engine, KeyRange};

use super::report::{Goal, Report};
use super::{key, reads, writes, Error, Options};

/// Bytes of memory that the process holds.
pub fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<f64>().ok()).map_or(f64::NAN, |kib| kib * 1024.0)
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    let started_with = resident();
    for &count in &options.keys {
        let dir = options.scratch()?;
        let open = || Engine::open(plinth_engine::Options::new(dir.path()));
        let x = count as f64;
        let engine = open()?;
        reads::fill(&engine, options, count, 1)?;
        engine.close()?;
        drop(engine);

        let started = Instant::now();
        let engine = open()?;
        let name = format!("start with {count} keys");
        report.add("memory", name, (started.elapsed().as_secs_f64() * 1e3, "ms"), None, None).at("start", x);

        let goal = (count >= 1_000_000).then_some(Goal::AtMost(100.0));
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let held = mib(resident() - started_with);
        report
            .add("memory", format!("memory after opening {count} keys"), (held, "MiB"), None, goal)
            .at("opened", x);

        let started = Instant::now();
        let found = engine.snapshot(At::Latest)?.count(&KeyRange::all())?;
        assert_eq!(found, count, "every key is there");
        let rate = x / started.elapsed().as_secs_f64();
        report.add("memory", format!("keys counted, of {count}"), (rate, "1/s"), None, None).at("counted", x);

        let started = Instant::now();
        let gets = 20_000u64;
        for n in 0..gets {
            engine.get(&key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count), At::Latest)?;
        }
        let rate = gets as f64 / started.elapsed().as_secs_f64();
        report
            .add("memory", format!("point reads, of {count} keys"), (rate, "1/s"), None, None)
            .at("gets", x);

        let load = writes::load(&engine, options, 100, writes::Keys::New(1 << 40), options.time() / 2)?;
        report
            .add("memory", format!("puts, 100 writers, with {count} keys"), (load.rate, "1/s"), None, None)
            .at("puts", x);

        let held = mib(resident() - started_with);
        report
            .add(
                "memory",
                format!("memory after counting, reading and writing, {count} keys"),
                (held, "MiB"),
                None,
                goal,
            )
            .at("used", x);
        engine.close()?;
    }
    Ok(())
}
