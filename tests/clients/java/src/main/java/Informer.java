import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.logging.LogManager;

/**
 * Runs one informer of fabric8 against a cache and answers its driver, ../python/scenario.py, about what it
 * holds and what its handlers saw.
 *
 * <p>{@code Informer --server URL [--kind generic|typed] [--selector LABEL=VALUE]}: API exports as generic
 * resources, or cluster roles as the library's own class.
 */
public final class Informer {
  private static final ResourceDefinitionContext API_EXPORTS = new ResourceDefinitionContext.Builder()
      .withGroup("apis.kcp.io").withVersion("v1alpha2").withKind("APIExport").withPlural("apiexports")
      .withNamespaced(false).build();

  /** The first pause before a watch is asked for again; it doubles. The library's own is a second. */
  private static final int RECONNECT_MS = 100;

  private final List<List<String>> seen = new ArrayList<>();

  public static void main(String[] arguments) throws Exception {
    Map<String, String> options = new LinkedHashMap<>();
    for (int at = 0; at + 1 < arguments.length; at += 2) {
      options.put(arguments[at], arguments[at + 1]);
    }
    // What goes wrong on the way is the driver's doing; the library tells of it at length.
    LogManager.getLogManager().reset();
    Config config = new ConfigBuilder(Config.empty()).withMasterUrl(options.get("--server"))
        .withWatchReconnectInterval(RECONNECT_MS).build();
    String selector = options.getOrDefault("--selector", "");
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
      if (options.getOrDefault("--kind", "generic").equals("typed")) {
        new Informer().answer(client.rbac().clusterRoles().withLabelSelector(selector).runnableInformer(0));
      } else {
        new Informer().answer(client.genericKubernetesResources(API_EXPORTS).withLabelSelector(selector).runnableInformer(0));
      }
    }
    // Its pools of threads would keep the program alive.
    System.exit(0);
  }

  private <T extends HasMetadata> void answer(SharedIndexInformer<T> informer) throws Exception {
    informer.addEventHandler(new Journal<>());
    informer.start();
    BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
    for (String question = questions.readLine(); question != null; question = questions.readLine()) {
      switch (question) {
        case "dump":
          say(dump(informer));
          break;
        case "events":
          say(Map.of("streams", List.of(drain())));
          break;
        default:
          return;
      }
    }
  }

  private static <T extends HasMetadata> Map<String, Object> dump(SharedIndexInformer<T> informer) {
    Map<String, String> items = new LinkedHashMap<>();
    for (T item : informer.getStore().list()) {
      ObjectMeta metadata = item.getMetadata();
      Map<String, String> place = metadata.getAnnotations();
      String namespace = metadata.getNamespace() == null ? "" : metadata.getNamespace();
      String key = String.join("|", place.get("kcp.io/shard"), place.get("kcp.io/cluster"), namespace, metadata.getName());
      items.put(key, metadata.getResourceVersion());
    }
    return Map.of("synced", informer.hasSynced(), "items", items);
  }

  private List<List<String>> drain() {
    synchronized (seen) {
      List<List<String>> drained = List.copyOf(seen);
      seen.clear();
      return drained;
    }
  }

  private static void say(Object answer) {
    System.out.println(Serialization.asJson(answer));
  }

  private final class Journal<T extends HasMetadata> implements ResourceEventHandler<T> {
    @Override
    public void onAdd(T item) {
      note("ADDED", item);
    }

    @Override
    public void onUpdate(T before, T item) {
      note("MODIFIED", item);
    }

    @Override
    public void onDelete(T item, boolean finalStateUnknown) {
      note("DELETED", item);
    }

    private void note(String kind, T item) {
      synchronized (seen) {
        seen.add(List.of(kind, item.getMetadata().getName(), item.getMetadata().getResourceVersion()));
      }
    }
  }
}
