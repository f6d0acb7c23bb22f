//! How much host memory may be pinned: what the system would rather not lose.

use std::{fs, path::Path};

/// Pinned pages can't be given to others, so some of the memory is left to them: this part of it is taken, in quarters.
const QUARTERS: u64 = 3;

/// Bytes of host memory that a process may pin without taking it from others: three quarters of what its control groups, or
/// else the machine, have beside what can't be given up. Ranks of one host pin the same page cache, which counts once, so
/// it isn't divided by their number.
pub(crate) fn pinnable() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mut least = machine(&read(Path::new("/proc/meminfo")).unwrap_or_default());
    for folder in folders(&groups) {
        let folder = Path::new("/sys/fs/cgroup").join(folder.trim_start_matches('/'));
        let max = read(&folder.join("memory.max")).unwrap_or_default();
        let stat = read(&folder.join("memory.stat")).unwrap_or_default();
        if let Some(room) = group(&max, &stat) {
            least = least.min(room);
        }
    }
    least / 4 * QUARTERS
}

/// The process's group and all above it, from `/proc/self/cgroup`.
fn folders(groups: &str) -> Vec<&str> {
    let Some(mut folder) = groups.lines().find_map(|line| line.strip_prefix("0::")) else { return vec![""] };
    let mut all = vec![folder];
    while let Some(end) = folder.rfind('/') {
        folder = &folder[..end];
        all.push(folder);
    }
    all
}

/// What a group's limit leaves beside its anonymous memory; `None` without a limit.
fn group(max: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let anonymous = stat.lines().find_map(|line| line.strip_prefix("anon ")?.trim().parse::<u64>().ok());
    Some(max.saturating_sub(anonymous.unwrap_or(0)))
}

/// All memory of the machine, from `/proc/meminfo`.
fn machine(meminfo: &str) -> u64 {
    let total =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    total.map_or(0, |kibibytes: u64| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_limit_leaves_what_is_not_anonymous_and_one_without_says_nothing() {
        assert_eq!(group("1000\n", "anon 300\nfile 650\n"), Some(700));
        assert_eq!(group("1000\n", ""), Some(1000));
        assert_eq!(group("max\n", "anon 300\n"), None);
        assert_eq!(group("", ""), None);
    }

    #[test]
    fn limits_of_all_groups_above_hold() {
        assert_eq!(folders("0::/a/b\n"), ["/a/b", "/a", ""]);
        assert_eq!(folders("0::/\n"), ["/", ""]);
        assert_eq!(folders("3:memory:/x\n"), [""]);
    }

    #[test]
    fn this_machine_has_some_memory_to_pin() {
        assert_eq!(machine("MemTotal:       16 kB\nMemFree: 1 kB\n"), 16 << 10);
        assert!(pinnable() > 1 << 20);
    }
}
