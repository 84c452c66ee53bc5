//! Lists of pod indexes in the spec and the status of an indexed Job.

/// Counts the indexes in a string such as `0-2,4`; they must be increasing and below `completions`.
pub(crate) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let index = |part: &str| {
        let number = part.parse::<i64>();
        let number = number.map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        match number < completions {
            true => Ok(number),
            false => Err(format!("too large index: {part:?}")),
        }
    };
    let (mut count, mut before) = (0, None);
    for interval in text.split(',') {
        let ends: Vec<&str> = interval.split('-').collect();
        let (first, last) = match ends.as_slice() {
            [one] => (index(one)?, index(one)?),
            [first, last] => (index(first)?, index(last)?),
            _ => return Err(format!("the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'")),
        };
        if ends.len() == 2 && first >= last {
            return Err(format!("non-increasing order, previous: {first}, current: {last}"));
        }
        if let Some(before) = before.filter(|before| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        count += last - first + 1;
        before = Some(last);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes() {
        // text, completions, count or part of the message
        let rows: [(&str, i64, Result<i64, &str>); 7] = [
            ("", 3, Ok(0)),
            ("0-2,4", 5, Ok(4)),
            ("5", 5, Err("too large index: \"5\"")),
            ("a", 5, Err("cannot convert string to integer for index: \"a\"")),
            ("2,1", 5, Err("non-increasing order")),
            ("2-1", 5, Err("non-increasing order")),
            ("1-2-3", 5, Err("at most two parts")),
        ];
        for (text, completions, expected) in rows {
            match (count_indexes(text, completions), expected) {
                (Ok(count), Ok(expected)) => assert_eq!(count, expected, "{text}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
