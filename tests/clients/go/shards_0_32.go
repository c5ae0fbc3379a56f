//go:build client_go_0_32

package main

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// shard is everything: this version knows no shard selector.
type shard struct{}

func newShard(_, of int) (shard, error) {
	if of != 1 {
		return shard{}, errors.New("client-go 0.32 has no shard selector")
	}
	return shard{}, nil
}

func (shard) apply(*metav1.ListOptions) {}

func (shard) owns(any) error { return nil }

func (shard) echoed(*rest.Config, schema.GroupVersionResource) error { return nil }
