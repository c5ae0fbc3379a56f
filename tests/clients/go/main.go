// Command informer runs one client-go informer against a cache and answers questions about what it
// holds. It speaks to its driver over standard input and output, one line each way:
//
//	dump  -> {"synced":true,"items":{"<shard>|<cluster>|<namespace>|<name>":"<resourceVersion>"}}
//	quit  -> ends
//
// The informer's store is keyed by UID-free namespace/name, as every stock informer's is, so the
// driver uses names that are unique across shards.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var (
	server   = flag.String("server", "", "base URL, scope included")
	kind     = flag.String("kind", "dynamic", "dynamic, metadata or typed")
	group    = flag.String("group", "apis.kcp.io", "API group")
	version  = flag.String("version", "v1alpha2", "API version")
	resource = flag.String("resource", "apiexports", "plural resource")
	selector = flag.String("selector", "", "label selector")
)

// journal counts what the informer's handler saw, so that the driver can check that events add up.
type journal struct {
	mu                      sync.Mutex
	added, updated, deleted int
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	stop := make(chan struct{})
	defer close(stop)
	informer, err := newInformer()
	if err != nil {
		return err
	}
	seen := &journal{}
	if _, err := informer.AddEventHandler(seen.handler()); err != nil {
		return err
	}
	go informer.Run(stop)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "dump":
			if err := dump(informer, seen); err != nil {
				return err
			}
		case "quit":
			return nil
		default:
			return fmt.Errorf("unknown question %q", lines.Text())
		}
	}
	return lines.Err()
}

func newInformer() (cache.SharedIndexInformer, error) {
	config := &rest.Config{Host: *server, QPS: -1, UserAgent: "shardcache-client-suite"}
	gvr := schema.GroupVersionResource{Group: *group, Version: *version, Resource: *resource}
	tweak := func(options *metav1.ListOptions) { options.LabelSelector = *selector }
	switch *kind {
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewFilteredDynamicInformer(client, gvr, "", 0, cache.Indexers{}, tweak).Informer(), nil
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewFilteredMetadataInformer(client, gvr, "", 0, cache.Indexers{}, tweak).Informer(), nil
	case "typed":
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		generic, err := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(tweak)).ForResource(gvr)
		if err != nil {
			return nil, err
		}
		return generic.Informer(), nil
	}
	return nil, fmt.Errorf("unknown kind %q", *kind)
}

func (j *journal) handler() cache.ResourceEventHandler {
	count := func(n *int) { j.mu.Lock(); defer j.mu.Unlock(); *n++ }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { count(&j.added) },
		UpdateFunc: func(any, any) { count(&j.updated) },
		DeleteFunc: func(any) { count(&j.deleted) },
	}
}

func dump(informer cache.SharedIndexInformer, seen *journal) error {
	items := map[string]string{}
	for _, object := range informer.GetStore().List() {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		annotations := accessor.GetAnnotations()
		key := annotations["kcp.io/shard"] + "|" + annotations["kcp.io/cluster"] + "|" + accessor.GetNamespace() + "|" + accessor.GetName()
		items[key] = accessor.GetResourceVersion()
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"synced": informer.HasSynced(), "items": items,
		"added": seen.added, "updated": seen.updated, "deleted": seen.deleted,
	})
}
