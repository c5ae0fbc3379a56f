use http_body::Body as _;
use http_body_util::BodyExt;
use proptest::prelude::*;

use super::*;

fn rope(parts: &[&'static str]) -> Rope {
    let mut rope = Rope::new();
    for part in parts {
        rope.push(Bytes::from_static(part.as_bytes()));
    }
    rope
}

#[test]
fn vectored_chunks_are_the_chunks_in_order() {
    let rope = rope(&["ab", "", "c", "def"]);
    let mut slices = [IoSlice::new(&[]); 8];
    let filled = rope.chunks_vectored(&mut slices);
    let seen: Vec<_> = slices[..filled].iter().map(|slice| slice.to_vec()).collect();
    assert_eq!(seen, [b"ab".to_vec(), b"c".to_vec(), b"def".to_vec()]);
    assert_eq!(rope.chunks_vectored(&mut slices[..1]), 1);
}

proptest! {
    #[test]
    fn a_rope_reads_like_its_concatenation(
        parts in prop::collection::vec("[a-z]{0,6}", 0..8),
        steps in prop::collection::vec((0_usize..9, any::<bool>()), 0..12),
    ) {
        let mut rope = Rope::new();
        for part in &parts {
            rope.push(Bytes::from(part.clone()));
        }
        let mut flat = Bytes::from(parts.concat());
        for (step, copy) in steps {
            let step = step.min(flat.len());
            if copy {
                prop_assert_eq!(rope.copy_to_bytes(step), flat.split_to(step));
            } else {
                rope.advance(step);
                flat.advance(step);
            }
            prop_assert_eq!(rope.remaining(), flat.len());
            prop_assert!(flat.starts_with(rope.chunk()));
            prop_assert_eq!(rope.chunk().is_empty(), flat.is_empty());
        }
    }
}

struct Scripted(Vec<Rope>);

impl Frames for Scripted {
    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Rope, BodyError>>> {
        assert!(!self.0.is_empty(), "the script ended");
        Poll::Ready(Some(Ok(self.0.remove(0))))
    }

    fn exact_len(&self) -> Option<u64> {
        Some(self.0.iter().map(|rope| rope.len() as u64).sum())
    }
}

#[tokio::test]
async fn in_process_readers_get_each_chunk_uncopied_and_the_exact_size() {
    let shared = Bytes::from_static(b"shared");
    let mut frame = Rope::new();
    frame.push(shared.clone());
    frame.push(Bytes::from_static(b"\n"));
    let mut body = BytesBody::from(Body::stream(Scripted(vec![frame, rope(&["x"])])));
    assert_eq!(body.size_hint().exact(), Some(8));
    let first = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
    assert_eq!(first.as_ptr(), shared.as_ptr());
    assert_eq!(body.size_hint().exact(), Some(2));
}

#[tokio::test]
async fn a_panic_while_producing_a_body_is_an_error_of_that_body_alone() {
    let mut body = Body::stream(Scripted(vec![]));
    let error = body.frame().await.expect("a frame").expect_err("the script panics");
    assert!(matches!(error, BodyError::Panicked));
    assert!(body.frame().await.is_none());
}
