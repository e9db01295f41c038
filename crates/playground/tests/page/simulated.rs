//! The simulation in a real Chromium: what a visitor sees of each lesson, by mouse and by keyboard, and by link.

use playground::bugs;
use playground::lessons::{Expected, LESSONS};
use playground::server::Page;

use super::{assert_lessons, assert_shown, drive, serve};

#[tokio::test(flavor = "multi_thread")]
async fn s2_2_a_visitor_breaks_a_simulated_payment_in_chromium() {
    let address = serve(Page::without_real_processes()).await;
    let lines = drive(&address, "simulation", None).await;
    assert_lessons(&lines);
    let find =
        |key: &str| lines.iter().find(|line| !line["lesson"].is_string() && !line[key].is_null()).unwrap();
    let lesson = LESSONS.iter().find(|lesson| lesson.name == "crash-between-attempts").unwrap();
    assert_shown(find("link"), "with-keys", lesson.with_keys);
    assert_shown(find("link"), "without-keys", lesson.without_keys);
    let dropped = find("dropped");
    assert_eq!(dropped["dropped"], "#schedule=reserve%3Acrash%2Cconfirmation%3Arepeat&engine=simulation");
    assert_shown(dropped, "with-keys", Expected { answer: "settled", charged: 1, left: 1 });
    assert_shown(dropped, "without-keys", Expected { answer: "settled", charged: 2, left: 1 });
    assert_eq!(find("bugs")["bugs"], bugs::recorded().unwrap().len());
}
