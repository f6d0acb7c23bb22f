//! Guesses at what was meant by a name that isn't there.

/// "did you mean label" if a name is near, else what names there are.
pub(crate) fn of(name: &str, known: &[&str]) -> String {
    const SHOWN: usize = 12;
    let near = known.iter().map(|other| (distance(&name.to_lowercase(), &other.to_lowercase()), *other)).min();
    match near {
        Some((steps, other)) if steps <= 1 + name.chars().count() / 3 => format!("did you mean {other}"),
        _ if known.is_empty() => "there are none".to_owned(),
        _ => {
            let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
            format!("there are {}{more}", known[..known.len().min(SHOWN)].join(", "))
        }
    }
}

/// Insertions, deletions, substitutions and swaps of neighbours (the optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_offered_and_else_all_are_listed() {
        assert_eq!(of("lable", &["id", "label", "score"]), "did you mean label");
        assert_eq!(of("Label", &["label"]), "did you mean label");
        assert_eq!(of("zebra", &["id", "label"]), "there are id, label");
        assert_eq!(of("x", &[]), "there are none");
    }

    #[test]
    fn a_swap_is_one_step() {
        assert_eq!((distance("lable", "label"), distance("", "abc"), distance("abc", "abd")), (1, 3, 1));
    }
}
