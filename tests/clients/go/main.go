// Command informer runs client-go informers against a cache and answers its driver, ../python/scenario.py,
// about what they hold and what their handlers saw. Several replicas share the collection, each with the
// objects of its range of hashes (KEP-5866); what they hold together is the answer, and nothing may be
// held twice.
//
// An informer's store is keyed by UID-free namespace/name, as every stock informer's is, so the
// driver uses names that are unique across shards.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

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
	replicas = flag.Int("replicas", 1, "informers that share the collection by hashes of uids")
)

// replica is an informer and the events that its handler saw since the driver last asked.
type replica struct {
	shard    shard
	informer cache.SharedIndexInformer
	mu       sync.Mutex
	seen     [][3]string
	// Lists and watches that failed or broke off.
	failures atomic.Int64
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
	var all []*replica
	for number := range *replicas {
		one, err := newReplica(number)
		if err != nil {
			return err
		}
		go one.informer.Run(stop)
		all = append(all, one)
	}
	answer := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var err error
		switch lines.Text() {
		case "dump":
			var held map[string]any
			if held, err = dump(all); err == nil {
				err = answer.Encode(held)
			}
		case "events":
			streams := make([][][3]string, len(all))
			for number, one := range all {
				streams[number] = one.drain()
			}
			err = answer.Encode(map[string]any{"streams": streams})
		case "failures":
			var failures int64
			for _, one := range all {
				failures += one.failures.Load()
			}
			err = answer.Encode(map[string]any{"failures": failures})
		case "quit":
			return nil
		default:
			err = fmt.Errorf("unknown question %q", lines.Text())
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

func newReplica(number int) (*replica, error) {
	config := &rest.Config{Host: *server, QPS: -1, UserAgent: "shardcache-client-suite"}
	gvr := schema.GroupVersionResource{Group: *group, Version: *version, Resource: *resource}
	shard, err := newShard(number, *replicas)
	if err != nil {
		return nil, err
	}
	if err := shard.echoed(config, gvr); err != nil {
		return nil, err
	}
	informer, err := newInformer(config, gvr, func(options *metav1.ListOptions) {
		options.LabelSelector = *selector
		shard.apply(options)
	})
	if err != nil {
		return nil, err
	}
	one := &replica{shard: shard, informer: informer, seen: [][3]string{}}
	note := func(_ *cache.Reflector, _ error) { one.failures.Add(1) }
	if err := informer.SetWatchErrorHandler(note); err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(one.handler())
	return one, err
}

func newInformer(config *rest.Config, gvr schema.GroupVersionResource, tweak func(*metav1.ListOptions)) (cache.SharedIndexInformer, error) {
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

func (r *replica) handler() cache.ResourceEventHandler {
	note := func(kind string, object any) {
		// An object whose deletion was only noticed in a list.
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			panic(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, [3]string{kind, accessor.GetName(), accessor.GetResourceVersion()})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note("ADDED", object) },
		UpdateFunc: func(_, object any) { note("MODIFIED", object) },
		DeleteFunc: func(object any) { note("DELETED", object) },
	}
}

func (r *replica) drain() [][3]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = [][3]string{}
	return seen
}

func dump(all []*replica) (map[string]any, error) {
	items := map[string]string{}
	synced := true
	for _, one := range all {
		synced = synced && one.informer.HasSynced()
		for _, object := range one.informer.GetStore().List() {
			if err := one.shard.owns(object); err != nil {
				return nil, err
			}
			accessor, err := meta.Accessor(object)
			if err != nil {
				return nil, err
			}
			annotations := accessor.GetAnnotations()
			key := annotations["kcp.io/shard"] + "|" + annotations["kcp.io/cluster"] + "|" + accessor.GetNamespace() + "|" + accessor.GetName()
			if _, twice := items[key]; twice {
				return nil, fmt.Errorf("two replicas hold %s", key)
			}
			items[key] = accessor.GetResourceVersion()
		}
	}
	return map[string]any{"synced": synced, "items": items}, nil
}
