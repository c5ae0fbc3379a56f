// Command refused reads a shard whose source cannot be asked, with client-go, and says in one line of JSON
// what its callers were told: for a list and for a get the error's reason, its causes, and after how many
// seconds.
//
//	refused <base URL, scope included> <name of an object>
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

type answer struct {
	ServerTimeout bool                 `json:"serverTimeout"`
	Causes        []metav1.StatusCause `json:"causes"`
	Seconds       float64              `json:"seconds"`
}

func main() {
	client, err := dynamic.NewForConfig(&rest.Config{Host: os.Args[1]})
	if err != nil {
		fail(err)
	}
	exports := client.Resource(schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"})
	answers := []answer{
		told(func(ctx context.Context) error {
			_, err := exports.List(ctx, metav1.ListOptions{})
			return err
		}),
		told(func(ctx context.Context) error {
			_, err := exports.Get(ctx, os.Args[2], metav1.GetOptions{})
			return err
		}),
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

// told is what a caller without a deadline of its own is told.
func told(read func(context.Context) error) answer {
	began := time.Now()
	err := read(context.Background())
	took := time.Since(began).Seconds()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil {
		fail(fmt.Errorf("not refused with details: %v", err))
	}
	return answer{apierrors.IsServerTimeout(err), status.ErrStatus.Details.Causes, took}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
