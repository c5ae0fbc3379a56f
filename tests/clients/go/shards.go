//go:build !client_go_0_32

package main

import (
	"context"
	"fmt"
	"math/big"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// shard is the part of the collection that one replica has; everything if there is one.
type shard struct{ selector sharding.Selector }

// newShard cuts the hashes of uids into equal ranges. The last one ends at 2^64, which is its own spelling.
func newShard(number, of int) (shard, error) {
	if of == 1 {
		return shard{sharding.Everything()}, nil
	}
	bound := func(at int) string {
		all := new(big.Int).Lsh(big.NewInt(1), 64)
		return fmt.Sprintf("0x%016x", all.Mul(all, big.NewInt(int64(at))).Div(all, big.NewInt(int64(of))))
	}
	return shard{sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: "object.metadata.uid", Start: bound(number), End: bound(number + 1),
	})}, nil
}

func (s shard) apply(options *metav1.ListOptions) { options.ShardSelector = s.selector.String() }

// owns tells whether the library's hash puts an object where the server put it.
func (s shard) owns(object any) error {
	if owned, err := s.selector.Matches(object.(runtime.Object)); err != nil || !owned {
		return fmt.Errorf("a replica holds what is not its own (%v): %v", err, object)
	}
	return nil
}

// echoed tells whether the server says that it honours the selector, which is all that a client has to go by.
func (s shard) echoed(config *rest.Config, gvr schema.GroupVersionResource) error {
	if s.selector.Empty() {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := client.Resource(gvr).List(context.Background(), metav1.ListOptions{ShardSelector: s.selector.String()})
	if err != nil {
		return err
	}
	if list.ShardInfo == nil || list.ShardInfo.Selector != s.selector.String() {
		return fmt.Errorf("the server does not echo %q: %v", s.selector, list.ShardInfo)
	}
	return nil
}
