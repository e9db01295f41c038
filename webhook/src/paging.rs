//! Pages of list routes: the limit of a page, and the cursor of the next one.

use service_kit::problem::Problem;

use crate::error::malformed_query;

/// Items on a page by default.
const LIMIT_DEFAULT: i64 = 50;
/// Upper bound of items on a page.
const LIMIT_MAX: i64 = 200;

/// The number of items on a page: the query's `limit`, or the default.
///
/// # Errors
/// 400 `malformed_query` if the limit is not 1 to 200.
pub(crate) fn page_limit(limit: Option<i64>) -> Result<i64, Problem> {
    let limit = limit.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(malformed_query(format!("limit must be 1 to {LIMIT_MAX}, not {limit}")))
    }
}

/// The `next` cursor: the id of the last item of a full page; `None` on the last page.
pub(crate) fn next_cursor<T>(items: &[T], limit: i64, id: impl Fn(&T) -> &str) -> Option<String> {
    let is_full = i64::try_from(items.len()).is_ok_and(|count| count == limit);
    if is_full { items.last().map(|item| id(item).to_owned()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_page_limit_is_1_to_200_and_50_by_default() {
        assert_eq!(page_limit(None).unwrap(), 50);
        assert_eq!(page_limit(Some(1)).unwrap(), 1);
        assert_eq!(page_limit(Some(200)).unwrap(), 200);
        for limit in [0, -1, 201] {
            assert_eq!(page_limit(Some(limit)).unwrap_err().code, "malformed_query");
        }
    }

    #[test]
    fn only_a_full_api_page_has_a_cursor() {
        let items = ["a".to_owned(), "b".to_owned()];
        assert_eq!(next_cursor(&items, 2, |item| item), Some("b".into()));
        assert_eq!(next_cursor(&items, 3, |item| item), None);
        assert_eq!(next_cursor(&items[..0], 1, |item| item), None);
    }
}
